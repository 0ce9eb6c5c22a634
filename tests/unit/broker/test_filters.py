"""SQL92 filters in pulls, held ones too; what they mean is in tests/golden/test_sql92.py."""

import asyncio
import re
from typing import Any

import pytest

from rocketpipe.broker.message_filter import requested_filter
from rocketpipe.broker.sql92 import parser
from rocketpipe.broker.sql92.expressions import DEPTH_MAX
from rocketpipe.broker.sql92.parser import CHARACTERS_MAX, compile_filter
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.connection import Connection
from tests.unit.broker.bench import Bench, send, simulated
from tests.unit.broker.reading import HELD, bodies, create_topic, join, pull

SQL92: dict[str, Any] = {"expression_type": "SQL92"}


async def send_numbers(client: Connection, *numbers: int) -> None:
    for number in numbers:
        await send(client, body=b"%d" % number, properties={"n": str(number), "TAGS": "t"})


@simulated
async def test_a_pull_gets_what_its_filter_wants(bench: Bench) -> None:
    async with (
        bench.broker(enable_property_filter=True) as broker,
        bench.client(broker.address) as client,
    ):
        await send_numbers(client, *range(6))
        await send(client, body=b"none")
        answer = await pull(client, subscription="n > 1 AND n <> 3 AND TAGS = 't'", **SQL92)
        assert bodies(answer) == [b"2", b"4", b"5"]
        assert answer.ext_fields["nextBeginOffset"] == "7"
        nothing = await pull(client, subscription="n > 9", **SQL92)
        assert (nothing.code, nothing.remark) == (20, "NO_MATCHED_MESSAGE")
        assert nothing.ext_fields["nextBeginOffset"] == "7"
        # As Apache's, which looks no further when it can't compile what a pull brings.
        for wrong in ("n >", "NOT n > 1"):
            assert len(bodies(await pull(client, subscription=wrong, **SQL92))) == 7


@simulated
async def test_a_group_gets_what_it_subscribed_to(bench: Bench) -> None:
    async with (
        bench.broker(enable_property_filter=True) as broker,
        bench.client(broker.address) as client,
    ):
        await send_numbers(client, *range(6))
        await join(client, "orders", expression="n IN ('1', '4')", **SQL92)
        assert bodies(await pull(client, sys_flag=0)) == [b"1", b"4"]
        await join(client, "orders", expression="n = 5", version=2, **SQL92)
        assert bodies(await pull(client, sys_flag=0)) == [b"5"]
        for version, wrong in enumerate(("n =", "n BETWEEN 9 AND 1"), start=3):
            await join(client, "orders", expression=wrong, version=version, **SQL92)
            refused = await pull(client, sys_flag=0)
            assert refused.code == 27
            assert refused.remark == (
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
            )
        await join(client, "orders", expression="n = 2", version=9, **SQL92)
        broker.settings.change({"enablePropertyFilter": "false"})
        refused = await pull(client, sys_flag=0)
        assert refused.code == 1
        assert refused.remark == "The broker does not support consumer to filter message by SQL92"


@simulated
async def test_a_held_pull_wakes_for_what_its_filter_wants(bench: Bench) -> None:
    async with (
        bench.broker(enable_property_filter=True) as broker,
        bench.client(broker.address) as client,
    ):
        await create_topic(client)
        waiting = asyncio.create_task(
            pull(
                client, subscription="n > 3", sys_flag=HELD, suspend_timeout_millis=60_000, **SQL92
            )
        )
        await asyncio.sleep(1)
        await send_numbers(client, 1, 2, 3)
        await asyncio.sleep(1)
        assert len(broker.held_pulls) == 1
        assert not waiting.done()
        await send_numbers(client, 4)
        answer = await waiting
        assert bodies(answer) == [b"4"]
        # One that wants nothing of what came is told how far the queue is by now.
        waiting = asyncio.create_task(
            pull(client, subscription="n > 9", sys_flag=HELD, queue_offset=4, **SQL92)
        )
        await asyncio.sleep(1)
        await send_numbers(client, 5)
        answer = await waiting
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (20, "5")


def test_wrong_filters_say_what_is_wrong_with_them() -> None:
    for expression, words in (
        ("a =", 'Encountered "<EOF>" at line 1, column 3.'),
        ("a = 1 AND\n  ,", 'Encountered "," at line 2, column 3.'),
        ("a = 1 ?", 'Lexical error at line 1, column 7.  Encountered: "?"'),
        ("a > 'x'", "Value ''x'' cannot be compared."),
        ("(a > 1) < 2", "Value 'a > 1' cannot be compared."),
        ("a = NULL", "'NULL' cannot be compared."),
        ("TRUE = 5", "'TRUE' cannot be compared with '5'"),
        ("-a", "Expression will not result in a boolean value: -a"),
        ("5 IN ('5')", "Expected a property for In expression, got: 5"),
        ("a BETWEEN 9 AND 1", "left value(9) must less than or equal to right value(1)"),
    ):
        with pytest.raises(InvalidSetting) as raised:
            compile_filter(expression)
        assert words in str(raised.value)
        with pytest.raises(InvalidSetting, match=re.escape(words)) as again:
            compile_filter(expression)
        assert str(again.value) == str(raised.value)


def test_filters_are_bounded() -> None:
    deepest = DEPTH_MAX - 2
    for nested in (
        "(" * deepest + "a = 1" + ")" * deepest,
        "NOT " * deepest + "a",
        "a" + " = 1" * deepest,
        "a" + " IS NULL" * deepest,
        "a" + " CONTAINS 'x'" * deepest,
    ):
        compile_filter(nested)({"a": "1"})
    many = DEPTH_MAX * 3
    for nested in (
        "(" * many + "a = 1" + ")" * many,
        "NOT " * many + "a",
        "- " * many + "a = 1",
        "+ " * many + "a = 1",
        "a" + " = 1" * many,
        "a" + " <> 1" * many,
        "a" + " IS NULL" * many,
        "a" + " CONTAINS 'x'" * many,
        "a" + " = (b" * many,
    ):
        with pytest.raises(InvalidSetting, match="nested deeper than"):
            compile_filter(nested)
    long = " OR ".join(f"a = '{number}'" for number in range(2000))
    assert compile_filter(long)({"a": "1999"})
    assert not compile_filter(long)({"a": "2000"})
    with pytest.raises(InvalidSetting, match="characters"):
        compile_filter("a = '" + "x" * CHARACTERS_MAX)


def test_a_filter_is_parsed_once() -> None:
    parser._compiled.cache_clear()
    first = requested_filter("a = 1", "SQL92")
    assert requested_filter("a = 1", "SQL92").matches is first.matches
    assert parser._compiled.cache_info().misses == 1
