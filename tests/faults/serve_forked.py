"""Runs `rocketpipe serve` with each line of arguments it reads, one process after another.

A process that has imported everything already is forked for each: it starts in a tenth of the time.
It says `started PID`, whatever the program says, and `ended STATUS`.
"""

import ctypes
import os
import signal
import sys

from rocketpipe.cli import main


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def die_with_parent() -> None:
    """Nothing of a test may outlive it, however that ends (PR_SET_PDEATHSIG is 1)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            die_with_parent()
            say(f"started {os.getpid()}")
            sys.exit(main(["serve", *line.split()]))
        _, status = os.waitpid(process, 0)
        say(f"ended {os.waitstatus_to_exitcode(status)}")
