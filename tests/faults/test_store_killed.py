"""A real process with a real disk, killed at random moments: what it promised is there."""

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.store_putter import new_store
from tests.stores import everything

ROOT = Path(__file__).parents[2]
ROUNDS = 5


@pytest.mark.slow
def test_what_a_killed_process_promised_is_there_once_and_in_order(tmp_path: Path) -> None:
    dice = random.Random(1)
    promised: dict[tuple[int, int], bytes] = {}
    for life in range(ROUNDS):
        for queue_id, offset, body in put_until_killed(tmp_path, life, dice.uniform(0.05, 0.4)):
            assert (queue_id, offset) not in promised
            promised[queue_id, offset] = body
        assert asyncio.run(stored(tmp_path)).items() >= promised.items()
    assert len(promised) > 100


def put_until_killed(folder: Path, life: int, seconds: float) -> list[tuple[int, int, bytes]]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.store_putter", str(folder), str(life)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    )
    assert process.stdout is not None
    first = process.stdout.readline()  # it has started
    killed_at = time.monotonic() + seconds
    output = [first]
    while time.monotonic() < killed_at:
        output.append(os.read(process.stdout.fileno(), 1 << 16))
    process.kill()
    output.append(process.stdout.read())
    process.wait()
    process.stdout.close()
    lines = [line.split() for line in b"".join(output).splitlines()]
    return [(int(queue_id), int(offset), body) for queue_id, offset, body in lines]


async def stored(folder: Path) -> dict[tuple[int, int], bytes]:
    store = new_store(folder)
    await store.open()
    found = {
        (queue_id, offset): body
        for (_, queue_id), messages in everything(store).items()
        for offset, body in messages
    }
    store.kill()
    assert len(set(found.values())) == len(found)
    return found
