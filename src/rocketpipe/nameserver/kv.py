"""The KV configuration: texts by namespace and key, kept in a file when there is one."""

import os
from dataclasses import field
from pathlib import Path

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import InvalidSetting, MalformedBody
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.codec import Body

# Which queues an ordered topic has, as in "broker-a:4;broker-b:4", by topic.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvConfigFile(Body):
    """What is in the file, which Apache's NameServer can read, and we its."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KvConfig:
    """What is put here is in the file, if there is one, before `put` returns."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._table = _load(path) if path is not None else {}

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All that is in a namespace; one that was emptied is still there, as with Apache."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str, *, bytes_max: int) -> None:
        """Keep a text; a Refusal or OSError when that can't be, and then nothing changed."""
        changed = {**self._table.get(namespace, {}), key: value}
        table = {**self._table, namespace: changed}
        if _size(table) > bytes_max:
            remark = f"the KV configuration would be over {bytes_max} bytes"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        self._replace(table)

    def delete(self, namespace: str, key: str) -> None:
        """Forget a text, if there is one."""
        if self.get(namespace, key) is not None:
            changed = {k: v for k, v in self._table[namespace].items() if k != key}
            self._replace({**self._table, namespace: changed})

    def _replace(self, table: dict[str, dict[str, str]]) -> None:
        if self._path is not None:
            _write_whole(self._path, KvConfigFile(config_table=table).encode())
        self._table = table


def _size(table: dict[str, dict[str, str]]) -> int:
    texts = [
        text
        for namespace, items in table.items()
        for text in (namespace, *items.keys(), *items.values())
    ]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def _load(path: Path) -> dict[str, dict[str, str]]:
    try:
        return KvConfigFile.decode(path.read_bytes()).config_table
    except FileNotFoundError:
        return {}
    except (OSError, MalformedBody) as error:
        raise InvalidSetting(f"{path} holds no KV configuration: {error}") from error


def _write_whole(path: Path, data: bytes) -> None:
    """Put data in a file so that a crash leaves the old or the new, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
