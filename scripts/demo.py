"""Messages survive a dying broker: eight senders, two real brokers, one of them killed.

Starts Apache RocketMQ 5.5.0 on free ports of this machine, sends orders to it all the while that
one of its brokers is killed and started again, then looks for every order that was acknowledged.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rocketpipe import AsyncProducer, Message, SendResult
from rocketpipe.errors import MQError, RemotingError
from tests.apache.cluster import ApacheCluster, StartFailed
from tests.apache.jars import Unavailable
from tests.interop.clusters import Reader

TOPIC = "orders"
SENDERS = 8
SECONDS = 15
KILLED_AT, STARTED_AT = 3, 6


def main() -> int:
    print("starting Apache RocketMQ 5.5.0 (the first time, Maven fetches it) ...", flush=True)
    settings = {"autoCreateTopicEnable": "true", "flushDiskType": "SYNC_FLUSH"}
    try:
        with ApacheCluster("5.5.0", settings=settings) as cluster:
            return asyncio.run(demo(cluster))
    except (Unavailable, StartFailed, MQError) as error:
        print(f"rocketpipe: {error}", file=sys.stderr)
        return 1


async def demo(cluster: ApacheCluster) -> int:
    outcomes: list[SendResult | MQError] = []
    # Routes are asked for more often than by default, so that the broker is seen to come back.
    async with AsyncProducer(
        "demo", namesrv=cluster.namesrv, policy="java5", poll_name_server_interval=2.0
    ) as producer:
        print(f"\n{'second':>6}  {'sent':>6}  {'failed':>6}  {'retried':>7}  stored by")
        async with asyncio.TaskGroup() as tasks:
            senders = [tasks.create_task(send_orders(producer, outcomes)) for _ in range(SENDERS)]
            tasks.create_task(hurt(cluster))
            for second in range(1, SECONDS + 1):
                start = len(outcomes)
                await asyncio.sleep(1)
                print(f"{second:>6}  {row(outcomes[start:])}{event(second)}", flush=True)
            for sender in senders:
                sender.cancel()
    return await judge(cluster, outcomes)


async def send_orders(producer: AsyncProducer, outcomes: list[SendResult | MQError]) -> None:
    while True:
        try:
            outcomes.append(await producer.send(Message(TOPIC, b"an order", tags="paid")))
        except MQError as error:
            outcomes.append(error)
        await asyncio.sleep(0.01)


async def hurt(cluster: ApacheCluster) -> None:
    broker = cluster.broker("broker-a")
    await asyncio.sleep(KILLED_AT)
    broker.kill()
    await asyncio.sleep(STARTED_AT - KILLED_AT)
    await asyncio.to_thread(broker.start)


def row(outcomes: list[SendResult | MQError]) -> str:
    stored = [each for each in outcomes if isinstance(each, SendResult)]
    failed = len(outcomes) - len(stored)
    retried = sum(len(each.attempts) > 1 for each in stored)
    shares = Counter(each.queue.broker_name for each in stored)
    by = ", ".join(
        f"{broker} {count / len(stored):.0%}" for broker, count in sorted(shares.items())
    )
    return f"{len(stored):>6}  {failed:>6}  {retried:>7}  {by}"


def event(second: int) -> str:
    events = {KILLED_AT + 1: "broker-a was killed", STARTED_AT + 1: "broker-a is starting"}
    return f"   <- {events[second]}" if second in events else ""


def met_the_dead(result: SendResult) -> bool:
    return any(isinstance(attempt.error, RemotingError) for attempt in result.attempts)


async def judge(cluster: ApacheCluster, outcomes: list[SendResult | MQError]) -> int:
    acknowledged = [each for each in outcomes if isinstance(each, SendResult)]
    rescued = [each for each in acknowledged if met_the_dead(each)]
    if rescued:
        print(f"\none of the {len(rescued)} sends that met the dead broker says of itself:")
        for attempt in rescued[0].attempts:
            print(f"  {attempt}")
    async with Reader(cluster.namesrv) as reader:
        messages = await reader.messages(TOPIC, len(acknowledged))
    stored = {message.message_id for message in messages}
    lost = sum(each.message_id not in stored for each in acknowledged)
    failed = len(outcomes) - len(acknowledged)
    print(f"\nacknowledged {len(acknowledged)}, failed {failed}, acknowledged but lost {lost}")
    return 1 if lost or failed else 0


if __name__ == "__main__":
    sys.exit(main())
