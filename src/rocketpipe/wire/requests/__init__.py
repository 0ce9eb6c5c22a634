"""Every request that a client, a broker or a NameServer of ours sends or answers."""

from collections.abc import Mapping
from typing import Any

from rocketpipe.codes import RequestCode
from rocketpipe.wire.headers import Request
from rocketpipe.wire.requests import (
    admin,
    callbacks,
    clients,
    nameserver,
    pop,
    reading,
    sending,
)

_MODULES = (admin, callbacks, clients, nameserver, pop, reading, sending)

REQUESTS: Mapping[RequestCode, type[Request[Any]]] = {
    declared.code: declared
    for module in _MODULES
    for declared in vars(module).values()
    if isinstance(declared, type) and issubclass(declared, Request) and declared is not Request
}
