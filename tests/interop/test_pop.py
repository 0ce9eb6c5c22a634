"""POP: brokers of 5.x share out messages, and each is acknowledged by itself."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from rocketpipe import AsyncAdmin, Message, Retry, StoredMessage
from rocketpipe.client.consumer.popping import give_receipts
from rocketpipe.clock import SystemClock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies.pop import BatchAck, BatchAckRequest, bit_set
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Request
from rocketpipe.wire.pop_receipt import Receipt, real_topic
from rocketpipe.wire.properties import FIRST_POP_TIME, POP_CK
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.pop import (
    AckMessage,
    BatchAckMessage,
    ChangeMessageInvisibletime,
    Notification,
    PopMessage,
    PopMessageReply,
)
from tests.apache.programs import JavaProgram
from tests.apache.require import require
from tests.interop.clusters import JAVA, Cluster, Reader, new_topic
from tests.interop.consuming import Remembers, push_at, send_to_all, until
from tests.interop.messages import producer_at


def has_pop(cluster: Cluster) -> bool:
    return cluster.version != "4.9.4"


def test_members_share_messages_and_none_is_lost_or_doubled(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("pop"), new_topic("pop")
        one, two = Remembers(), Remembers()
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)
            how = {"subscriptions": {topic: "*"}, "pop": True}
            first = push_at(cluster, group, one, instance_name="one", **how)
            if not has_pop(cluster):
                with pytest.raises(BrokerError, match="not supported"):
                    await first.start()
                return
            async with first, push_at(cluster, group, two, instance_name="two", **how) as second:
                assert {queue.queue_id for queue in await second.assigned()} == {-1}
                sent = await send_to_all(cluster, queues, 50)
                everything = sorted(body for bodies in sent.values() for body in bodies)
                await until(
                    lambda: len(one.bodies + two.bodies) >= len(everything), "all messages came"
                )
                assert sorted(one.bodies + two.bodies) == everything
                assert one.bodies
                assert two.bodies
            late = Remembers()
            async with push_at(cluster, group, late, **how):
                (extra,) = (await send_to_all(cluster, queues[:1], 1, begin=50)).values()
                await until(lambda: extra[0] in late.bodies, "the last one came")
                await asyncio.sleep(3)
            assert late.bodies == extra  # all others were acknowledged

    asyncio.run(main())


def test_a_popped_message_that_fails_comes_again_and_then_is_a_dead_letter(
    cluster: Cluster,
) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        group, topic = new_topic("pop-retry"), new_topic("pop-retry")
        given: list[tuple[bytes, int, str]] = []

        async def listen(messages: list[StoredMessage]) -> Retry | None:
            (message,) = messages
            given.append((message.body, message.reconsume_times, message.topic))
            return Retry(delay_level=1) if message.body == b"bad" else None

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            async with push_at(
                cluster,
                group,
                listen,
                subscriptions={topic: "*"},
                pop=True,
                max_reconsume_times=1,
            ):
                for body in (b"bad", b"good"):
                    await producer.send(Message(topic, body))
                await until(lambda: len(given) >= 3, "it came again")
                (dead,) = await reader.messages(f"%DLQ%{group}", 1)
            assert Counter(given) == Counter(
                [(b"good", 0, topic), (b"bad", 0, topic), (b"bad", 1, topic)]
            )
            assert dead.body == b"bad"

    asyncio.run(main())


def test_what_a_listener_does_not_finish_in_time_comes_again(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        group, topic = new_topic("pop-late"), new_topic("pop-late")
        given: list[int] = []

        async def listen(messages: list[StoredMessage]) -> None:
            given.append(messages[0].reconsume_times)
            if len(given) == 1:
                await asyncio.sleep(3600)

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            async with push_at(
                cluster,
                group,
                listen,
                subscriptions={topic: "*"},
                pop=True,
                invisible_time=5.0,
                close_timeout=0.1,
            ):
                await producer.send(Message(topic, b"x"))
                await until(lambda: len(given) >= 2, "it came again")
        assert given[:2] == [0, 1]

    asyncio.run(main())


# Java's push consumer that pops.


def rows(output: str) -> list[list[str]]:
    return [line.split("\t")[1:] for line in output.splitlines() if line.startswith("got\t")]


async def lag(cluster: Cluster, group: str) -> int:
    """How many messages the group has not got, on all queues, as consumerProgress says."""
    async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
        return (await admin.progress(group)).lag


def test_javas_push_consumer_pops_and_what_failed_comes_again(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")
    require(cluster.version)

    async def main() -> None:
        group, topic = new_topic("pop-java"), new_topic("pop-java")
        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)
            sent = await send_to_all(cluster, queues, 20)
            await producer.send(Message(topic, b"bad"))
            args = [group, topic, "concurrent"]
            with JavaProgram(
                cluster.version, JAVA / "PopMember.java", args, namesrv=cluster.namesrv
            ) as java:
                count = sum(map(len, sent.values())) + 2
                await until(lambda: len(rows(java.output)) >= count, "all came, one of them twice")

                async def all_is_read() -> bool:
                    return await lag(cluster, group) == 0

                await until(all_is_read, "nothing is left")
                given = rows(java.output)
            everything = sorted(body for bodies in sent.values() for body in bodies)
            assert sorted(row[0].encode() for row in given) == sorted([*everything, b"bad", b"bad"])
            assert {row[1] for row in given} == {topic}
            assert [row[2] for row in given if row[0] == "bad"] == ["0", "1"]
            late = Remembers()
            how: dict[str, Any] = {"subscriptions": {topic: "*"}, "pop": True}
            async with push_at(cluster, group, late, **how):
                await producer.send(Message(topic, b"last"))
                await until(lambda: b"last" in late.bodies, "the last one came")
            assert late.bodies == [b"last"]  # it had acknowledged all others

    asyncio.run(main())


def test_javas_orderly_push_consumer_pops_each_queue_in_order(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")
    require(cluster.version)

    async def main() -> None:
        group, topic = new_topic("pop-order"), new_topic("pop-order")
        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            queues = await reader.create_topic(topic, cluster.brokers[:1], queues=2)
            for queue in queues:
                for text in ("1", "bad 2", "3", "4"):
                    await producer.send(
                        Message(topic, f"{text} {queue.queue_id}".encode()), queue=queue
                    )
            args = [group, topic, "orderly"]
            with JavaProgram(
                cluster.version, JAVA / "PopMember.java", args, namesrv=cluster.namesrv
            ) as java:

                def last_of_each() -> set[str]:
                    return {row[0] for row in rows(java.output)} & {"4 0", "4 1"}

                await until(lambda: len(last_of_each()) == 2, "all came")
                given = rows(java.output)
        for queue_id in ("0", "1"):
            firsts = list(dict.fromkeys(row[0] for row in given if row[3] == queue_id))
            assert firsts == [f"{text} {queue_id}" for text in ("1", "bad 2", "3", "4")]
            times = [int(row[2]) for row in given if row[0] == f"bad 2 {queue_id}"]
            assert times[:2] == [0, 1]

    asyncio.run(main())


# The requests themselves.


class Popper:
    """Asks one broker, by raw requests."""

    def __init__(self, broker: Connection, broker_name: str, group: str, topic: str) -> None:
        self._broker = broker
        self._broker_name = broker_name
        self.group = group
        self.topic = topic

    async def ask(self, request: Request[Any], body: bytes = b"") -> RemotingCommand:
        return await self._broker.invoke(request.to_command(body), timeout=30)

    async def ask_to_pop(self, **changes: Any) -> RemotingCommand:
        fields: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": 0,
            "max_msg_nums": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "born_time": SystemClock().wall_ms(),
            "init_mode": 0,
            "exp_type": "TAG",
            "exp": "*",
            "order": False,
        }
        return await self.ask(PopMessage(**(fields | changes)))

    async def pop(self, **changes: Any) -> list[StoredMessage]:
        answer = await self.ask_to_pop(**changes)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        assert answer.code == 0, answer
        found = decode_records(answer.body)
        header = PopMessageReply.from_ext_fields(answer.ext_fields)
        give_receipts(found, header, self._broker_name)
        return found

    async def pop_until(self, count: int, **changes: Any) -> list[StoredMessage]:
        """What comes, until it is so much."""
        found: list[StoredMessage] = []

        async def is_enough() -> bool:
            found.extend(await self.pop(**changes))
            return len(found) >= count

        await until(is_enough, f"{count} messages came")
        return found

    def place(self, message: StoredMessage) -> dict[str, Any]:
        receipt = Receipt.parse(message.properties[POP_CK])
        return {
            "consumer_group": self.group,
            "topic": real_topic(self.group, self.topic, receipt.kind),
            "queue_id": receipt.queue_id,
            "extra_info": str(receipt),
            "offset": receipt.queue_offset,
        }

    async def ack(self, message: StoredMessage, **changes: Any) -> int:
        return (await self.ask(AckMessage(**(self.place(message) | changes)))).code

    async def hide(self, message: StoredMessage, ms: int, **changes: Any) -> RemotingCommand:
        fields = self.place(message) | {"invisible_time": ms} | changes
        return await self.ask(ChangeMessageInvisibletime(**fields))


async def popper_at(cluster: Cluster, reader: Reader, *bodies: bytes, tags: str = "a") -> Popper:
    """One of a new group, for a new topic with one queue that has these."""
    group, topic = new_topic("pop-raw"), new_topic("pop-raw")
    (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
    async with producer_at(cluster) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, tags=tags))
    return Popper(await reader.broker(queue), queue.broker_name, group, topic)


def test_receipts_and_answers_are_alike(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            popper = await popper_at(cluster, reader, b"1", b"2", b"3")
            answer = await popper.ask_to_pop(max_msg_nums=2, invisible_time=4_000)
            assert (answer.code, answer.remark) == (0, "FOUND")
            fields = answer.ext_fields
            assert fields["startOffsetInfo"] == "0 0 0"
            assert fields["msgOffsetInfo"] == "0 0 0,1"
            assert (fields["invisibleTime"], fields["restNum"]) == ("4000", "1")
            assert 0 <= int(fields["reviveQid"]) < 8
            (three,) = await popper.pop()
            nothing = await popper.ask_to_pop()
            assert (nothing.code, nothing.remark) == (210, "NO_MESSAGE_IN_QUEUE")
            # What comes again is under the name it had, with a receipt for where it is now.
            again = await popper.pop_until(2)
            assert sorted(message.body for message in again) == [b"1", b"2"]
            for message in again:
                receipt = Receipt.parse(message.properties[POP_CK])
                assert (message.topic, receipt.kind, receipt.queue_id) == (popper.topic, "1", 0)
                assert (message.reconsume_times, message.tags) == (1, "a")
                assert message.properties[FIRST_POP_TIME] == fields["popTime"]
            for message in (three, *again):
                assert await popper.ack(message) == 0

    asyncio.run(main())


def test_refusals_are_alike(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            popper = await popper_at(cluster, reader, b"1")
            for changes, code in (
                ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
                ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER),
                ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
                ({"born_time": 1}, ResponseCode.POLLING_TIMEOUT),
            ):
                assert (await popper.ask_to_pop(**changes)).code == code, changes
            (one,) = await popper.pop()
            for changes, code in (
                ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
                ({"queue_id": 1}, ResponseCode.MESSAGE_ILLEGAL),
                ({"offset": 7}, ResponseCode.NO_MESSAGE),
                ({"extra_info": "0 1"}, ResponseCode.SYSTEM_ERROR),
                ({"extra_info": "a b c d e f g h"}, ResponseCode.SYSTEM_ERROR),
            ):
                assert await popper.ack(one, **changes) == code, changes
                assert (await popper.hide(one, 1_000, **changes)).code == code, changes
            empty = await popper.ask(BatchAckMessage(), b"{}")
            assert empty.code == ResponseCode.NO_MESSAGE
            assert await popper.ack(one) == 0
            assert await popper.ack(one) == 0  # nothing is wrong with that

    asyncio.run(main())


def test_invisible_times_change_and_many_are_acknowledged_at_once(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            popper = await popper_at(cluster, reader, *(b"%d" % n for n in range(6)))
            found = await popper.pop()
            assert len(found) == 6
            receipt = Receipt.parse(found[0].properties[POP_CK])
            batch = BatchAck(
                consumer_group=popper.group,
                topic=popper.topic,
                start_offset=receipt.start_offset,
                revive_queue_id=receipt.revive_queue_id,
                pop_time=receipt.pop_time,
                invisible_time=receipt.invisible_time,
                bit_set=bit_set([0, 2, 3]),
            )
            body = BatchAckRequest(broker_name=receipt.broker_name, acks=(batch,)).encode()
            assert (await popper.ask(BatchAckMessage(), body)).code == 0
            answer = await popper.hide(found[1], 2_000)
            assert answer.code == 0
            assert answer.ext_fields["invisibleTime"] == "2000"
            assert int(answer.ext_fields["popTime"]) >= receipt.pop_time
            # The others are still invisible, or done with.
            (again,) = await popper.pop_until(1)
            assert again.body == b"1"
            for message in (again, *found[4:]):
                assert await popper.ack(message) == 0

    asyncio.run(main())


def test_a_notification_tells_of_messages(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            popper = await popper_at(cluster, reader)

            async def ask() -> str:
                question = Notification(
                    consumer_group=popper.group,
                    topic=popper.topic,
                    queue_id=-1,
                    poll_time=20_000,
                    born_time=SystemClock().wall_ms(),
                )
                answer = await popper.ask(question)
                assert answer.code == 0
                return answer.ext_fields["hasMsg"]

            waiting = asyncio.create_task(ask())
            await asyncio.sleep(1)
            assert not waiting.done()
            async with producer_at(cluster) as producer:
                await producer.send(Message(popper.topic, b"1"))
            assert await waiting == "true"
            assert await ask() == "true"

    asyncio.run(main())


def test_an_ordered_pop_waits_for_the_one_before_it(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            popper = await popper_at(cluster, reader, b"1", b"2", b"3")
            ordered = {"order": True, "max_msg_nums": 2}
            answer = await popper.ask_to_pop(**ordered, invisible_time=4_000)
            assert answer.ext_fields["reviveQid"] == "999"
            assert answer.ext_fields["orderCountInfo"] == "0 0 0"
            assert await popper.pop(**ordered) == []
            answers: list[RemotingCommand] = []

            async def it_comes_again() -> bool:
                answers.append(await popper.ask_to_pop(**ordered))
                return answers[-1].code == 0

            await until(it_comes_again, "the same come again")
            assert answers[-1].ext_fields["msgOffsetInfo"] == "0 0 0,1"
            counts = answers[-1].ext_fields["orderCountInfo"].split(";")
            assert sorted(counts) == ["0 0 1", "0 qo0%0 1", "0 qo0%1 1"]
            found = decode_records(answers[-1].body)
            header = PopMessageReply.from_ext_fields(answers[-1].ext_fields)
            give_receipts(found, header, cluster.brokers[0].name)
            assert await popper.ack(found[0], offset=2) == ResponseCode.MESSAGE_ILLEGAL
            for message in found:
                assert await popper.pop(**ordered) == []
                assert await popper.ack(message) == 0
            assert [message.body for message in await popper.pop(**ordered)] == [b"3"]

    asyncio.run(main())
