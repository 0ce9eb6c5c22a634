"""A stored message, for tests that care for little of it."""

from dataclasses import replace
from typing import Any

from rocketpipe.message import StoredMessage

_PLAIN = StoredMessage(
    topic="orders",
    body=b"body",
    properties={},
    queue_id=0,
    queue_offset=0,
    physical_offset=0,
    flag=0,
    sys_flag=0,
    body_crc=0,
    born_timestamp_ms=0,
    born_host="10.0.0.1:1",
    store_timestamp_ms=0,
    store_host="10.0.0.2:10911",
    reconsume_times=0,
    prepared_transaction_offset=0,
    store_size=0,
)


def stored_message(**fields: Any) -> StoredMessage:
    return replace(_PLAIN, **fields)
