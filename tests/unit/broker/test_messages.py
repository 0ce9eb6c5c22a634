"""Messages by key and place, and the entries of a queue."""

from typing import Any

from rocketpipe.wire.bodies.offsets import ConsumeQueueAnswer
from rocketpipe.wire.hashing import tags_code
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.record import decode_record
from rocketpipe.wire.requests.admin import QueryConsumeQueue
from rocketpipe.wire.requests.reading import QueryMessage, ViewMessageById
from tests.unit.broker.bench import Bench, send, simulated
from tests.unit.broker.reading import ask, bodies, join


def query_header(key: str, **changes: Any) -> QueryMessage:
    fields: dict[str, Any] = {
        "topic": "orders",
        "max_num": 64,
        "begin_timestamp": 0,
        "end_timestamp": 1 << 62,
    }
    return QueryMessage(key=key, **(fields | changes))


@simulated
async def test_a_message_is_found_by_its_place(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, body=b"first")
        reply = await send(client, body=b"second")
        place = parse_offset_message_id(reply.msg_id).physical_offset
        found = await client.request(ViewMessageById(offset=place), timeout=3)
        assert decode_record(bytes(found)).body == b"second"
        answer = await ask(client, ViewMessageById(offset=place + 1))
        assert answer.code == 1
        assert answer.remark == f"can not find message by the offset, {place + 1}"


@simulated
async def test_messages_are_found_by_key_the_newest_in_the_order_they_came(bench: Bench) -> None:
    settings = {"default_query_max_num": 2}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        for number in range(3):
            properties = {"KEYS": "shared", "UNIQ_KEY": f"U{number % 2}"}
            await send(client, body=b"%d" % number, properties=properties)
        answer = await ask(client, query_header("shared"))
        assert (answer.code, bodies(answer)) == (0, [b"0", b"1", b"2"])
        assert int(answer.ext_fields["indexLastUpdatePhyoffset"]) > 0
        newest_ms = broker.store.store_time_at("orders", 0, 2)
        assert answer.ext_fields["indexLastUpdateTimestamp"] == str(newest_ms)
        assert bodies(await ask(client, query_header("shared", max_num=1))) == [b"2"]
        unique = query_header("U0", unique_key_query=True, max_num=1)
        assert bodies(await ask(client, unique)) == [b"0", b"2"]
        later = query_header("shared", begin_timestamp=bench.clock.wall_ms() + 60_000)
        for header in (query_header("absent"), query_header("shared", topic="bills"), later):
            answer = await ask(client, header)
            assert answer.code == 22
            assert answer.remark == "can not find message, maybe time range not correct"
            assert "indexLastUpdatePhyoffset" in answer.ext_fields


@simulated
async def test_no_more_messages_are_found_by_key_than_the_broker_gives(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for _ in range(70):
            await send(client, properties={"KEYS": "shared"})
        assert len(bodies(await ask(client, query_header("shared", max_num=500)))) == 64
        broker.settings.change({"maxMsgsNumBatch": "3"})
        assert len(bodies(await ask(client, query_header("shared", max_num=500)))) == 3


@simulated
async def test_an_answer_to_a_query_fits_a_frame(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for number in range(4):
            body = b"%d" % number * 3_000_000
            await send(client, body=body, properties={"KEYS": "large"})
        answer = await ask(client, query_header("large"))
        assert [body[:1] for body in bodies(answer)] == [b"2", b"3"]


@simulated
async def test_the_entries_of_a_queue_are_told(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        sizes = []
        for tags in ("a", "b"):
            start = broker.store.max_physical_offset
            await send(client, properties={"TAGS": tags})
            sizes.append(broker.store.max_physical_offset - start)

        def header(**changes: Any) -> QueryConsumeQueue:
            fields: dict[str, Any] = {"topic": "orders", "queue_id": 0, "index": 0, "count": 10}
            return QueryConsumeQueue(**(fields | changes))

        told = await client.request(header(), timeout=3)
        assert (told.min_queue_index, told.max_queue_index) == (0, 2)
        assert [
            (each.physic_offset, each.physic_size, each.tags_code) for each in told.queue_data
        ] == [(0, sizes[0], tags_code("a")), (sizes[0], sizes[1], tags_code("b"))]
        assert len((await client.request(header(count=1), timeout=3)).queue_data) == 1
        beyond = await ask(client, header(index=2))
        assert (beyond.code, beyond.remark) == (0, "Index 2 of 0@orders is not exist!")
        empty = await client.request(header(queue_id=1), timeout=3)
        assert empty == ConsumeQueueAnswer()
        offline = await client.request(header(consumer_group="readers"), timeout=3)
        assert offline.filter_data == "readers@orders is not online!"
        await join(client, "orders", expression="a")
        online = await client.request(header(consumer_group="readers"), timeout=3)
        assert online.subscription_data is not None
        assert online.subscription_data.sub_string == "a"
