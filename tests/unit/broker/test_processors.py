"""The table of who answers what says what the modules say."""

from pathlib import Path

import pytest

from rocketpipe.broker import processors
from rocketpipe.broker.processors import CODES, all_handlers, handlers_of
from tests.unit.broker.bench import Bench, simulated


def test_every_module_is_in_the_table() -> None:
    folder = Path(processors.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == CODES.keys()


@pytest.mark.parametrize("name", CODES)
def test_a_module_answers_what_the_table_says(name: str) -> None:
    @simulated
    async def play(bench: Bench) -> None:
        async with bench.broker() as broker:
            assert sorted(handlers_of(name, broker)) == sorted(CODES[name])

    play()


@simulated
async def test_nobody_answers_what_others_do(bench: Bench) -> None:
    async with bench.broker() as broker:
        assert len(all_handlers(broker)) == sum(map(len, CODES.values()))
