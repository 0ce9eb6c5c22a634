"""Faults that outlive the process of their broker, however it ends."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rocketpipe.broker.faults import Fault, Faults, RunningFault


class KeptFaults(Faults):
    """Faults that are in a file, too, with the number of requests each has met.

    One call of the system writes them all, so a process that is killed leaves the old or the new.
    Times are those of the monotonic clock, which all processes of a machine share until it is
    started anew: such a file is for a cluster's life, and no longer.
    """

    def __init__(self, now: Callable[[], float], path: Path) -> None:
        super().__init__(now)
        self._path = path
        if path.exists():
            self._load(path.read_text())

    def _load(self, text: str) -> None:
        kept = json.loads(text.partition("\n")[0])
        self._next_id = kept["next_id"]
        for values in kept["faults"]:
            until = values.pop("until")
            fault = Fault.from_json(values)
            running = RunningFault(fault, math.inf if until is None else until)
            running.hits = fault.hits
            self._running.append(running)

    def _keep(self) -> None:
        faults = [
            {
                **replace(each.fault, hits=each.hits).to_json(),
                "until": None if each.until == math.inf else each.until,
            }
            for each in self._running
        ]
        # What is behind the end of the line is of a longer one before, and nobody reads it.
        line = f"{json.dumps({'next_id': self._next_id, 'faults': faults})}\n".encode()
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, line, 0)
        finally:
            os.close(file)
