"""What tests of the reading side ask for, in short."""

from dataclasses import replace
from typing import Any

from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Request
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.admin import UpdateAndCreateTopic
from rocketpipe.wire.requests.clients import HeartBeat
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, PULL_SUSPEND, PullMessage

HELD = PULL_SUBSCRIPTION | PULL_SUSPEND


def pull_header(**changes: Any) -> PullMessage:
    """A pull of all that queue 0 of `orders` holds."""
    fields: dict[str, Any] = {
        "consumer_group": "readers",
        "topic": "orders",
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": PULL_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "subscription": "*",
        "sub_version": 0,
    }
    return PullMessage(**(fields | changes))


async def ask(
    client: Connection, request: Request[Any], body: bytes = b"", *, timeout: float = 60.0
) -> RemotingCommand:
    """The answer, whatever its code."""
    return await client.invoke(request.to_command(body), timeout=timeout)


async def pull(client: Connection, *, timeout: float = 60.0, **changes: Any) -> RemotingCommand:
    return await ask(client, pull_header(**changes), timeout=timeout)


def bodies(answer: RemotingCommand) -> list[bytes]:
    """Of the messages that a pull found."""
    return [message.body for message in decode_records(answer.body, decompressing=False)]


async def create_topic(client: Connection, topic: str = "orders", **changes: Any) -> None:
    fields: dict[str, Any] = {
        "default_topic": "TBW102",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        "order": False,
    }
    await client.request(UpdateAndCreateTopic(topic=topic, **(fields | changes)), timeout=9)


async def join(
    client: Connection,
    *topics: str,
    group: str = "readers",
    client_id: str = "c@1",
    expression: str = "*",
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
    expression_type: str = "TAG",
) -> None:
    """Make a consumer of a group known that reads these topics."""
    consumer = ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        subscription_data_set=tuple(
            replace(
                SubscriptionData.of_tags(topic, expression, sub_version=version),
                expression_type=expression_type,
            )
            for topic in topics
        ),
    )
    beat = HeartbeatData(client_id=client_id, consumer_data_set=(consumer,))
    await client.request(HeartBeat(), beat.encode(), timeout=3)
