"""Every request that a client, a broker or a NameServer of ours sends or answers."""

from collections.abc import Iterator, Mapping
from typing import Any

from rocketpipe.codes import RequestCode
from rocketpipe.wire.headers import Request
from rocketpipe.wire.requests import (  # noqa: F401  (their classes register by being defined)
    admin,
    callbacks,
    clients,
    nameserver,
    pop,
    reading,
    sending,
)


def _concrete(request: type[Request[Any]]) -> Iterator[type[Request[Any]]]:
    if hasattr(request, "code"):
        yield request
    for subclass in request.__subclasses__():
        yield from _concrete(subclass)


REQUESTS: Mapping[RequestCode, type[Request[Any]]] = {
    request.code: request for request in _concrete(Request)
}
