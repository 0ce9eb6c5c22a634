"""Who answers a request, and how its failure becomes an answer."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import MalformedData
from rocketpipe.wire.frame import RemotingCommand

if TYPE_CHECKING:
    from rocketpipe.remoting.connection import Connection

log = logging.getLogger(__name__)

REMARK_CHARACTERS_MAX = 4096  # an error may quote what is as large as a frame

# What a handler returns is sent back; None sends nothing, or not yet: see Connection.answer. A
# plain function costs no task, so only those who have to wait are coroutines.
Outcome = RemotingCommand | None
Handler = Callable[["Connection", RemotingCommand], Outcome | Awaitable[Outcome]]


class Refusal(Exception):
    """A handler's way to say no: the mirror image of the client's BrokerError."""

    def __init__(
        self, code: ResponseCode, remark: str, ext_fields: dict[str, str] | None = None
    ) -> None:
        super().__init__(code, remark, ext_fields)
        self.code = code
        self.remark = remark
        self.ext_fields = ext_fields


def dispatch_by_code(handlers: Mapping[int, Handler]) -> Handler:
    """A handler that hands each request to the one for its code."""

    def dispatch(
        connection: "Connection", request: RemotingCommand
    ) -> Outcome | Awaitable[Outcome]:
        handler = handlers.get(request.code)
        if handler is None:
            # Apache's words, its leading space included.
            remark = f" request type {request.code} not supported"
            raise Refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        return handler(connection, request)

    return dispatch


def failure_answer(request: RemotingCommand, error: BaseException) -> RemotingCommand:
    """What to tell the peer whose request ended in this error."""
    if isinstance(error, Refusal):
        return request.answer(error.code, error.remark, error.ext_fields)
    if isinstance(error, MalformedData):  # the peer's mistake, not ours
        log.info("%s was malformed: %s", request.name, error)
    else:
        log.error("%s failed", request.name, exc_info=error)
    remark = f"{type(error).__name__}: {error}"[:REMARK_CHARACTERS_MAX]
    return request.answer(ResponseCode.SYSTEM_ERROR, remark)
