"""Pulls that are answered at once."""

from dataclasses import replace
from typing import Any

import pytest

from rocketpipe.broker import page_cache
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.codes import RequestCode
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.heartbeat import MessageModel
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.requests.reading import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from tests.unit.broker.bench import Bench, messages, send, simulated
from tests.unit.broker.reading import HELD, ask, bodies, create_topic, join, pull, pull_header


@simulated
async def test_a_pull_answers_whole_records_and_where_to_read_on(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for number in range(5):
            await send(client, body=b"%d" % number)
        answer = await pull(client, queue_offset=1, max_msg_nums=2)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "3",
            "minOffset": "0",
            "maxOffset": "5",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        assert bodies(answer) == [b"1", b"2"]
        read = broker.store.read("orders", 0, 1, count_max=2, bytes_max=9999)
        assert answer.body == read.records
        lite = pull_header().to_command()
        lite.code = RequestCode.LITE_PULL_MESSAGE
        assert bodies(await client.invoke(lite, timeout=3)) == [b"%d" % n for n in range(5)]


@simulated
async def test_an_answer_has_so_many_messages_and_bytes_and_no_more(bench: Bench) -> None:
    limits = {
        "max_transfer_count_on_message_in_memory": 4,
        "max_transfer_bytes_on_message_in_memory": 3000,
    }
    async with bench.broker(**limits) as broker, bench.client(broker.address) as client:
        for size in (10, 10, 10, 10, 10, 5000, 1000, 1000, 1000):
            await send(client, body=bytes(size))

        async def sizes(offset: int, **changes: Any) -> list[int]:
            return [
                len(body) for body in bodies(await pull(client, queue_offset=offset, **changes))
            ]

        assert await sizes(0) == [10] * 4
        assert await sizes(0, max_msg_nums=100) == [10] * 4
        assert await sizes(0, max_msg_nums=0) == [10]
        assert await sizes(4) == [10]
        assert await sizes(5) == [5000]  # one is given, however large
        assert await sizes(6) == [1000, 1000]
        assert await sizes(6, max_msg_bytes=1500) == [1000]
        assert await sizes(6, max_msg_bytes=1 << 30) == [1000, 1000]
        assert await sizes(6, max_msg_bytes=0) == [1000, 1000]


@simulated
async def test_tags_choose_by_their_hash(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for tags in ("a", "b", "AaAa", "BBBB", None):  # Java's hashes of the long ones are equal
            await send(client, body=str(tags).encode(), properties={"TAGS": tags} if tags else {})

        async def found(expression: str | None) -> list[bytes]:
            return bodies(await pull(client, subscription=expression))

        assert await found("a") == [b"a"]
        assert await found("a || b") == [b"a", b"b"]
        assert await found("AaAa") == [b"AaAa", b"BBBB"]
        assert await found("x" * 300 + "||b") == [b"b"]
        assert len(await found("*")) == len(await found(None)) == len(await found("")) == 5
        nothing = await pull(client, subscription="c")
        assert (nothing.code, nothing.remark) == (20, "NO_MATCHED_MESSAGE")
        assert nothing.ext_fields["nextBeginOffset"] == "5"
        await join(client, "orders", expression="b || a")
        assert bodies(await pull(client, sys_flag=0)) == [b"a", b"b"]
        await join(client, "orders", expression="*", version=2)
        assert len(bodies(await pull(client, sys_flag=0))) == 5


MISSED = [
    # Offset of the pull, code, remark, next offset.
    (3, 19, "OFFSET_OVERFLOW_ONE", 3),
    (4, 21, "OFFSET_OVERFLOW_BADLY", 3),
    (-1, 21, "OFFSET_TOO_SMALL", 0),
]


@simulated
async def test_a_pull_that_finds_nothing_says_why(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for _ in range(3):
            await send(client)
        for offset, code, remark, next_offset in MISSED:
            answer = await pull(client, queue_offset=offset)
            assert (answer.code, answer.remark) == (code, remark)
            assert answer.ext_fields["nextBeginOffset"] == str(next_offset)
            assert answer.ext_fields["maxOffset"] == "3"
        for offset, code in ((0, 19), (5, 21)):
            answer = await pull(client, queue_id=1, queue_offset=offset)
            assert (answer.code, answer.remark) == (code, "NO_MESSAGE_IN_QUEUE")
            assert answer.ext_fields["nextBeginOffset"] == "0"


REFUSED: list[tuple[dict[str, Any], int, str, str | None]] = [
    ({"topic": "absent"}, 17, "topic[absent] not exist, apply first please! \nSee https", None),
    ({"topic": "secret"}, 16, "the topic[secret] pulling message is forbidden", "3"),
    ({"queue_id": -1}, 29, "queueId[-1] is illegal, topic:[orders]", None),
    ({"queue_id": 4}, 29, "topicConfig.readQueueNums:[4] consumer:[/10.0.0.2:", None),
    ({"consumer_group": "no good"}, 26, "subscription group [no good] does not exist, ", None),
    ({"consumer_group": "stopped"}, 16, "subscription group no permission, stopped", "2"),
    ({"subscription": "||"}, 23, "parse the consumer's subscription failed", None),
    ({"subscription": "", "expression_type": "SQL92"}, 23, "parse the consumer's sub", None),
    ({"subscription": "a=1", "expression_type": "SQL92"}, 1, "filter message by SQL92", None),
    ({"sys_flag": 0, "consumer_group": "new"}, 24, "the consumer's group info not exist", None),
    ({"sys_flag": 0, "topic": "bills"}, 24, "the consumer's subscription not exist", None),
    ({"sys_flag": 0, "sub_version": 8}, 25, "the consumer's subscription not latest", None),
    ({"sys_flag": 0, "consumer_group": "loud"}, 16, "can not consume by broadcast way", "4"),
    ({"sys_flag": 0, "consumer_group": "barred"}, 16, "[barred] is forbidden for topic", "5"),
]


@simulated
async def test_pulls_are_refused_with_apaches_codes_and_words(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for topic in ("orders", "secret", "bills"):
            await send(client, topic)
        broker.topics.put([replace(broker.topics.table["secret"], perm=Perm.WRITE)])
        await join(client, "orders", version=7)
        await join(client, "orders", group="loud", model=MessageModel.BROADCASTING)
        await join(client, "orders", group="barred")
        broker.groups.put(SubscriptionGroupConfig(group_name="stopped", consume_enable=False))
        broker.groups.put(
            SubscriptionGroupConfig(group_name="loud", consume_broadcast_enable=False)
        )
        broker.groups.forbidden["barred"] = {"orders": int(Perm.READ)}
        for change, code, remark, kind in REFUSED:
            answer = await pull(client, **change)
            assert answer.code == code, (change, answer.remark)
            assert remark in (answer.remark or "")
            assert answer.ext_fields == ({"forbiddenType": kind} if kind else {})
        assert (await pull(client, sys_flag=0, sub_version=7)).code == 0


@simulated
async def test_a_broker_may_forbid_pulls(bench: Bench) -> None:
    settings = {"lite_pull_message_enable": False}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await send(client)
        lite = pull_header().to_command()
        lite.code = RequestCode.LITE_PULL_MESSAGE
        answer = await client.invoke(lite, timeout=3)
        assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "1"})
        assert answer.remark == "the broker[10.0.0.1] for lite pull consumer is forbidden"
        assert (await pull(client)).code == 0
        broker.settings.change({"brokerPermission": "2"})
        answer = await pull(client)
        assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "1"})
        assert answer.remark == "the broker[10.0.0.1] pulling message is forbidden"


@simulated
async def test_a_pull_may_commit_on_the_way(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for _ in range(3):
            await send(client)
        await pull(client, commit_offset=1)
        assert broker.offsets.query("readers", "orders", 0) == -1
        await pull(client, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET)
        assert broker.offsets.query("readers", "orders", 0) == 0
        assert broker.offsets.query_pulled("readers", "orders", 0) == 3
        flags = PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET
        await pull(client, sys_flag=flags, commit_offset=2)
        await pull(client, sys_flag=flags, commit_offset=-1)
        assert broker.offsets.query("readers", "orders", 0) == 2
        # Also one that is held then, and once is enough.
        held = pull_header(
            sys_flag=flags | HELD, commit_offset=3, queue_offset=3, suspend_timeout_millis=2000
        )
        await ask(client, held)
        assert broker.offsets.query("readers", "orders", 0) == 3


@simulated
async def test_who_is_far_behind_is_sent_to_a_slave_where_that_is_wanted(bench: Bench) -> None:
    settings = {"slave_read_enable": True, "access_message_in_memory_max_ratio": 0.0}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        for _ in range(3):
            await send(client)
        suggested = [
            (await pull(client, queue_offset=offset, max_msg_nums=1)).ext_fields[
                "suggestWhichBrokerId"
            ]
            for offset in range(4)
        ]
        assert suggested == ["1", "1", "1", "1"]
        broker.settings.change({"accessMessageInMemoryMaxRatio": "40"})
        assert (await pull(client)).ext_fields["suggestWhichBrokerId"] == "0"
        assert page_cache.MEMORY_BYTES > 1 << 20


@simulated
async def test_a_slave_serves_reads_and_corrects_nobody(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for number in range(3):
            await send(client, body=b"%d" % number)
    async with (
        bench.broker(broker_role=BrokerRole.SLAVE, broker_id=1) as broker,
        bench.client(broker.address) as client,
    ):
        assert bodies(await pull(client)) == [b"0", b"1", b"2"]
        for offset in (-5, 99):
            answer = await pull(client, queue_offset=offset)
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (19, str(offset))
        assert len(messages(broker)) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [("queueId", "x"), ("queueOffset", str(1 << 63)), ("maxMsgNums", ""), ("sysFlag", None)],
)
def test_a_pull_with_a_malformed_header_gets_an_answer(name: str, text: str | None) -> None:
    @simulated
    async def check(bench: Bench) -> None:
        async with bench.broker() as broker, bench.client(broker.address) as client:
            await create_topic(client)
            command = pull_header().to_command()
            del command.ext_fields[name]
            if text is not None:
                command.ext_fields[name] = text
            answer = await client.invoke(command, timeout=3)
            assert answer.code == 1
            assert f"PullMessage: {name} is " in (answer.remark or "")

    check()
