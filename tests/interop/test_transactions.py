"""Transactions: half messages, what listeners say, and the questions of brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from rocketpipe import (
    AsyncTransactionProducer,
    HalfMessage,
    Message,
    SendStatus,
    StoredMessage,
    TransactionState,
)
from tests.interop.clusters import TIMEOUT, Cluster, Reader, new_topic

pytestmark = pytest.mark.usefixtures("spinning_brokers_end")

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)
# So soon a broker may ask; by default it waits for six seconds. The harness lets it look every two.
# 5.x writes down up to three seconds late what has ended, and may ask again, or commit twice, until
# then: so nothing here counts what a broker asks.
SOON = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "1"}


class Listener:
    """Says what it is told to say, per body; at a check the next thing each time, then the last."""

    def __init__(
        self,
        executes: Mapping[bytes, TransactionState],
        checks: Mapping[bytes, list[TransactionState]] | None = None,
        while_executing: Callable[[HalfMessage], Awaitable[object]] | None = None,
    ) -> None:
        self.checked: list[StoredMessage] = []
        self._executes = executes
        self._checks = checks or {}
        self._while_executing = while_executing

    async def execute(self, message: HalfMessage, arg: Any) -> TransactionState:
        if self._while_executing is not None:
            await self._while_executing(message)
        return self._executes[message.body]

    def check(self, message: StoredMessage) -> TransactionState:
        self.checked.append(message)
        answers = self._checks[message.body]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def transactions(
    cluster: Cluster, listener: Any, group: str, name: str = "first"
) -> AsyncTransactionProducer:
    return AsyncTransactionProducer(
        group,
        listener,
        namesrv=cluster.namesrv,
        instance_name=f"{group}-{name}",
        send_timeout=TIMEOUT,
    )


def test_a_message_is_there_once_it_is_committed_and_not_before(cluster: Cluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            topic = new_topic("committed")
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)

            async def look(half: HalfMessage) -> None:
                assert [await reader.end(queue) for queue in queues] == [0, 0]

            listener = Listener({b"work": COMMIT}, while_executing=look)
            async with transactions(cluster, listener, topic) as producer:
                message = Message(topic, b"work", tags="paid", keys=["o-1"], properties={"a": "b"})
                result = await producer.send_in_transaction(message, "arg")
                assert result.state is COMMIT
                assert result.send_result.status is SendStatus.SEND_OK
                (stored,) = await reader.messages(topic, 1)
            assert (stored.body, stored.tags, stored.keys) == (b"work", "paid", ("o-1",))
            assert stored.message_id == result.send_result.message_id
            assert stored.properties["a"] == "b"
            assert stored.properties["PGROUP"] == topic

    asyncio.run(main())


def test_brokers_ask_for_what_they_do_not_know_and_for_nothing_else(cluster: Cluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            topic = new_topic("checked")
            await reader.create_topic(topic, cluster.brokers, queues=1)
            large = b"a large body is compressed " * 1000
            listener = Listener(
                {b"good": COMMIT, b"bad": ROLLBACK, b"slow": UNKNOWN, large: UNKNOWN},
                {b"slow": [UNKNOWN, COMMIT], large: [COMMIT], b"broken": [ROLLBACK]},
            )
            async with transactions(cluster, listener, topic) as producer:

                async def state(body: bytes, properties: Mapping[str, str]) -> TransactionState:
                    message = Message(topic, body, properties=properties)
                    return (await producer.send_in_transaction(message)).state

                assert await state(b"good", {}) is COMMIT
                assert await state(b"bad", {}) is ROLLBACK
                for body in (b"slow", large, b"broken"):  # the last makes the listener raise
                    assert await state(body, SOON) is UNKNOWN
                await reader.messages(topic, 3)
                await asyncio.sleep(9)  # by then brokers would have asked for the others too
            messages = {message.body for message in await reader.messages(topic, 3)}
            assert messages == {b"good", b"slow", large}
            checked = [message.body for message in listener.checked]
            assert set(checked) == {b"slow", large, b"broken"}
            assert checked.count(b"slow") > 1
            assert {message.topic for message in listener.checked} == {topic}

    asyncio.run(main())


def test_any_producer_of_the_group_may_be_asked(cluster: Cluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            topic = new_topic("inherited")
            await reader.create_topic(topic, cluster.brokers, queues=1)
            first = transactions(cluster, Listener({b"work": UNKNOWN}), topic)
            heir = Listener({}, {b"work": [COMMIT]})
            async with first:
                sent = await first.send_in_transaction(Message(topic, b"work", properties=SOON))
            async with transactions(cluster, heir, topic, "second") as second:
                # It is known to brokers once it has looked for its topic.
                await second.send(Message(topic, b"hello"))
                messages = await reader.messages(topic, 2)
            assert {message.body for message in messages} == {b"work", b"hello"}
            assert {each.message_id for each in heir.checked} == {sent.send_result.message_id}

    asyncio.run(main())
