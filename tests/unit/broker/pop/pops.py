"""What tests of POP ask for, in short."""

import asyncio
from typing import Any

from rocketpipe.client.consumer.popping import give_receipts
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.testing.simulated_loop import SimulatedClock
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.pop_receipt import Receipt, real_topic
from rocketpipe.wire.properties import POP_CK
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.pop import (
    AckMessage,
    ChangeInvisibleTimeReply,
    ChangeMessageInvisibletime,
    PopMessage,
)
from tests.unit.broker.reading import ask

BROKER = "broker-a"
RETRY = "%RETRY%readers_orders"


def pop_header(**changes: Any) -> PopMessage:
    """A pop that does not wait, of any queue of `orders`."""
    fields: dict[str, Any] = {
        "consumer_group": "readers",
        "topic": "orders",
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": 60_000,
        "poll_time": 0,
        "born_time": SimulatedClock(asyncio.get_running_loop()).wall_ms(),
        "init_mode": 0,
        "exp_type": "TAG",
        "exp": "*",
        "order": False,
    }
    return PopMessage(**(fields | changes))


async def ask_to_pop(client: Connection, **changes: Any) -> RemotingCommand:
    """The answer, whatever its code."""
    return await ask(client, pop_header(**changes))


async def pop(client: Connection, **changes: Any) -> list[StoredMessage]:
    """The messages with their receipts, as a client has them; none when there are none."""
    answer = await client.request(pop_header(**changes), timeout=60)
    if answer.header is None:
        return []
    found = decode_records(answer.body)
    give_receipts(found, answer.header, BROKER)
    return found


def place(message: StoredMessage, group: str = "readers", topic: str = "orders") -> dict[str, Any]:
    """The fields by which a request names a popped message."""
    receipt = Receipt.parse(message.properties[POP_CK])
    return {
        "consumer_group": group,
        "topic": real_topic(group, topic, receipt.kind),
        "queue_id": receipt.queue_id,
        "extra_info": str(receipt),
        "offset": receipt.queue_offset,
    }


async def ack(client: Connection, message: StoredMessage, **changes: Any) -> RemotingCommand:
    return await ask(client, AckMessage(**(place(message) | changes)))


async def hide(
    client: Connection, message: StoredMessage, invisible_time: int, **changes: Any
) -> ChangeInvisibleTimeReply:
    """Change the invisible time of a message."""
    fields = place(message) | {"invisible_time": invisible_time} | changes
    return await client.request(ChangeMessageInvisibletime(**fields), timeout=3)


def texts(messages: list[StoredMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)
