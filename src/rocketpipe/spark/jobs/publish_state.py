"""What a publishing job has done, in a small file that the next run reads."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketpipe.errors import InvalidSetting, JobError

_NAME = re.compile(r"[\w.-]{1,100}")


def state_file(job_id: str, folder: Path | None) -> Path:
    """Where a job's state is; by default under $XDG_STATE_HOME."""
    if not _NAME.fullmatch(job_id) or job_id.startswith("."):
        raise InvalidSetting(f"job id {job_id!r}: write letters, digits, '-', '_' and '.'")
    if folder is None:
        base = os.environ.get("XDG_STATE_HOME")
        folder = Path(base) if base else Path.home() / ".local" / "state"
        folder = folder / "rocketpipe" / "publish"
    return folder / f"{job_id}.json"


@dataclass
class PublishState:
    """Written as a whole, each time something is done."""

    file: Path
    mapping: dict[str, Any]  # how rows become messages
    sizes: dict[str, int]  # of each file
    started_ms: int
    has_begun: bool = False
    is_done: bool = False
    done: set[str] = field(default_factory=set)  # units

    @classmethod
    def open(
        cls, file: Path, mapping: dict[str, Any], sizes: dict[str, int], now_ms: int, is_dry: bool
    ) -> "PublishState":
        """That of an earlier run, or a new one; InvalidSetting if the job has changed since."""
        try:
            told = json.loads(file.read_text())
        except FileNotFoundError:
            return cls(file, mapping, sizes, now_ms)
        except (OSError, ValueError) as error:
            raise JobError(f"{file} can't be read: {error}") from None
        if is_dry:
            return cls(file, mapping, sizes, now_ms)
        for name, value in mapping.items():
            if told["mapping"].get(name) != value:
                raise InvalidSetting(
                    f"job {file.stem} began with {name} {told['mapping'].get(name)!r}, not "
                    f"{value!r}: use another job id for another job"
                )
        changed = [
            name
            for name in {**told["sizes"], **sizes}
            if told["sizes"].get(name) != sizes.get(name)
        ]
        if changed:
            raise JobError(
                f"{min(changed)} has changed, come or gone since job {file.stem} began: use "
                "another job id for other files"
            )
        return cls(
            file, mapping, sizes, told["started_ms"], True, told["is_done"], set(told["done"])
        )

    def begin(self) -> None:
        """From now on, rows may have been stored."""
        if not self.has_begun:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._write()

    def add(self, units: Iterable[str]) -> None:
        """These are stored as a whole."""
        more = set(units) - self.done
        if more:
            self.done |= more
            self._write()

    def finish(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._write()

    def _write(self) -> None:
        draft = self.file.with_suffix(".new")
        told = {
            "mapping": self.mapping,
            "sizes": self.sizes,
            "started_ms": self.started_ms,
            "is_done": self.is_done,
            "done": sorted(self.done),
        }
        draft.write_text(json.dumps(told))
        draft.replace(self.file)
