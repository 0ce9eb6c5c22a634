"""SQL92 filters: the golden file is what Apache's jars say, and brokers filter and refuse alike."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe import Message, MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies import groups
from rocketpipe.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.clients import CheckClientConfig, HeartBeat
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, PULL_SUSPEND, PullMessage
from tests.apache.programs import java_program
from tests.interop.clusters import TIMEOUT, Cluster, Reader, new_topic
from tests.interop.messages import producer_at

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_the_golden_answers_are_those_of_the_release(apache_version: str) -> None:
    golden = TESTS / "golden" / "sql92.json"
    program = TESTS / "apache" / "java" / "SqlFilters.java"
    finished = java_program(apache_version, program, [str(golden)])
    assert finished.exit_code == 0, finished.output
    cases = json.loads(golden.read_text("utf-8"))["cases"]
    assert finished.output.splitlines() == [case["answers"] for case in cases]


async def pull(broker: Connection, queue: MessageQueue, **changes: Any) -> RemotingCommand:
    fields: dict[str, Any] = {
        "consumer_group": "sql-readers",
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": PULL_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "sub_version": 0,
        "expression_type": "SQL92",
    }
    request = PullMessage(topic=queue.topic, queue_id=queue.queue_id, **(fields | changes))
    return await broker.invoke(request.to_command(), timeout=TIMEOUT)


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


def sql(topic: str, expression: str, version: int) -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, sub_version=version, expression_type="SQL92"
    )


def test_pulls_get_what_their_filter_wants(cluster: Cluster) -> None:
    async def main() -> None:
        topic = new_topic("sql-pull")
        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            broker = await reader.broker(queue)

            async def send(*numbers: int) -> None:
                for number in numbers:
                    properties = {"n": str(number)}
                    message = Message(topic, b"%d" % number, properties=properties)
                    await producer.send(message, queue=queue)

            await send(0, 1, 2, 3)
            await reader.messages(topic, 4)
            found = await pull(broker, queue, subscription="n BETWEEN 1 AND 2 OR n IS NULL")
            assert bodies(found) == [b"1", b"2"]
            nothing = await pull(broker, queue, subscription="n IN ('9')")
            assert (nothing.code, nothing.ext_fields["nextBeginOffset"]) == (20, "4")
            assert len(bodies(await pull(broker, queue, subscription="n >"))) == 4
            refused = await pull(broker, queue, subscription="")
            assert (refused.code, refused.remark) == (
                23,
                "parse the consumer's subscription failed",
            )

            # One that waits is woken by what it wants, or told now and then how far it got.
            offset, woken = 4, b""
            flags = PULL_SUBSCRIPTION | PULL_SUSPEND
            waiting = {"sys_flag": flags, "suspend_timeout_millis": 10_000}
            for number in (5, 5, 7):
                held = asyncio.create_task(
                    pull(broker, queue, subscription="n > 6", queue_offset=offset, **waiting)
                )
                await asyncio.sleep(0.2)
                await send(number)
                answer = await held
                offset = int(answer.ext_fields["nextBeginOffset"])
                woken += b"".join(bodies(answer))
            assert (offset, woken) == (7, b"7")

    asyncio.run(main())


def test_wrong_filters_are_refused(cluster: Cluster) -> None:
    async def main() -> None:
        topic, group = new_topic("sql-wrong"), new_topic("sql-wrong")
        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            await producer.send(Message(topic, b"x", properties={"n": "1"}), queue=queue)
            await reader.messages(topic, 1)
            broker = await reader.broker(queue)

            async def checked(expression: str) -> int:
                body = groups.CheckClientConfig(
                    client_id="c", group=group, subscription_data=sql(topic, expression, 1)
                ).encode()
                answer = await broker.invoke(CheckClientConfig().to_command(body), timeout=TIMEOUT)
                return answer.code

            async def subscribed(expression: str, version: int) -> RemotingCommand:
                consumer = ConsumerData(
                    group_name=group,
                    consume_type=ConsumeType.CONSUME_PASSIVELY,
                    message_model=MessageModel.CLUSTERING,
                    subscription_data_set=(sql(topic, expression, version),),
                )
                beat = HeartbeatData(client_id="c", consumer_data_set=(consumer,))
                await broker.request(HeartBeat(), beat.encode(), timeout=TIMEOUT)
                return await pull(
                    broker, queue, sys_flag=0, consumer_group=group, sub_version=version
                )

            assert await checked("n = 1") == 0
            for wrong in ("n =", "NOT n > 1", "n = 1 AND #", "n IN (1)", "n BETWEEN 2 AND 1"):
                assert await checked(wrong) == 23, wrong
            assert bodies(await subscribed("n = 1", 1)) == [b"x"]
            refused = await subscribed("n =", 2)
            assert refused.code == 27
            assert refused.remark == (
                "The broker's consumer filter data is not exist!Your expression may be wrong!"
            )
            assert (await subscribed("n = 2", 3)).code == 20
            latest = await pull(broker, queue, sys_flag=0, consumer_group=group, sub_version=9)
            assert latest.code == 25

    asyncio.run(main())
