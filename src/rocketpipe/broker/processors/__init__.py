"""Who answers which request. Each module gives its handlers, made of the parts of a broker.

sending       10, 310, 320: messages
recalls       370: timed messages that are taken back
send_back     36: messages that a consumer could not handle
transactions  37: their end
replies       324, 325: the second half of request-reply
clients       34, 35: who is there
slave_sync    21, 43, 45, 60, 201: what slaves copy besides the log
pulling       11, 361: messages of a queue, from an offset on
popping       200050, 200051, 200053 to 200055, 200151: messages of any queue, and their receipts
sharing       400, 401: which queues a consumer shall read, and how
messages      12, 33, 321: messages by key and place, entries of a queue
offsets       14, 15, 29 to 32, 222, 314: of groups and of queues
consumers     38, 41, 42, 46: what the members of a group ask
topics        17, 18, 202, 215, 300, 305, 351: topics, for administrators
groups        200, 203, 204, 207, 208, 225, 303, 328, 352: groups and clients, for administrators
callbacks     223, 307, 309: what is asked of a broker, which asks a client
runtime       25, 26, 28, 306, 316: the broker itself
statistics    315, 317, 907: numbers, for administrators
"""

from typing import TYPE_CHECKING

from rocketpipe.broker.processors import (
    callbacks,
    clients,
    consumers,
    groups,
    messages,
    offsets,
    popping,
    pulling,
    recalls,
    replies,
    runtime,
    send_back,
    sending,
    sharing,
    slave_sync,
    statistics,
    topics,
    transactions,
)
from rocketpipe.remoting.dispatch import Handler

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

_MODULES = (
    *(sending, recalls, send_back, transactions, replies, clients, slave_sync),
    *(pulling, popping, sharing, messages, offsets, consumers),
    *(topics, groups, callbacks, runtime, statistics),
)


def all_handlers(broker: "Broker") -> dict[int, Handler]:
    """The handler of each request code this broker answers."""
    merged: dict[int, Handler] = {}
    for module in _MODULES:
        contributed = module.handlers(broker)
        assert not merged.keys() & contributed.keys(), f"{module.__name__} answers what others do"
        merged.update(contributed)
    return merged
