"""Who answers which request. Each module gives its handlers, made of the parts of a broker.

A module is imported when one of its requests comes for the first time: a broker that is sent to, as
most are in tests, starts in half the time without the others.
"""

from collections.abc import Awaitable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Outcome
from rocketpipe.wire.frame import RemotingCommand

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

CODES: Mapping[str, tuple[int, ...]] = {
    "sending": (10, 310, 320),  # messages
    "recalls": (370,),  # timed messages that are taken back
    "send_back": (36,),  # messages that a consumer could not handle
    "transactions": (37,),  # their end
    "replies": (324, 325),  # the second half of request-reply
    "clients": (34, 35),  # who is there
    "slave_sync": (21, 43, 45, 60, 201),  # what slaves copy besides the log
    "pulling": (11, 361),  # messages of a queue, from an offset on
    # Messages of any queue, and their receipts.
    "popping": (200050, 200051, 200053, 200054, 200055, 200151),
    "sharing": (400, 401),  # which queues a consumer shall read, and how
    "messages": (12, 33, 321),  # messages by key and place, entries of a queue
    "offsets": (14, 15, 29, 30, 31, 32, 222, 314),  # of groups and of queues
    "consumers": (38, 41, 42, 46),  # what the members of a group ask
    "topics": (17, 18, 202, 215, 300, 305, 351),  # topics, for administrators
    # Groups and clients, for administrators.
    "groups": (200, 203, 204, 207, 208, 225, 303, 328, 352),
    "callbacks": (223, 307, 309),  # what is asked of a broker, which asks a client
    "runtime": (25, 26, 28, 306, 316),  # the broker itself
    "statistics": (315, 317, 907),  # numbers, for administrators
}


def all_handlers(broker: "Broker") -> dict[int, Handler]:
    """The handler of each request code this broker answers."""
    return {code: handler for name in CODES for code, handler in _late(name, broker).items()}


def handlers_of(name: str, broker: "Broker") -> Mapping[int, Handler]:
    """Those of one module."""
    found: Mapping[int, Handler] = import_module(f"{__name__}.{name}").handlers(broker)
    return found


def _late(name: str, broker: "Broker") -> dict[int, Handler]:
    found: Mapping[int, Handler] | None = None

    def handle(connection: Connection, request: RemotingCommand) -> Outcome | Awaitable[Outcome]:
        nonlocal found
        if found is None:
            found = handlers_of(name, broker)
        return found[request.code](connection, request)

    return dict.fromkeys(CODES[name], handle)
