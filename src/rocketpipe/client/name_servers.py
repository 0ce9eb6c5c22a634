"""Asking the NameServers: one of them until it fails, then the next."""

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from rocketpipe.client.connections import Connections
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, MQError, NoNameServer, RemotingError
from rocketpipe.remoting.address import Address
from rocketpipe.wire.headers import Reply, Request

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Reply)

# What a NameServer says of itself, such as that it is not ready; another may know more.
FAILURE_CODES = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY})


class NameServers:
    def __init__(
        self, addresses: Sequence[Address], connections: Connections, dice: Random
    ) -> None:
        # Shuffled, so that many clients do not all lean on the first of the list.
        self._addresses = dice.sample(addresses, len(addresses))
        self._connections = connections

    @property
    def addresses(self) -> list[str]:
        return [str(address) for address in self._addresses]

    async def ask(
        self, request: Request[R], body: bytes = b"", *, question: str, timeout: float
    ) -> R:
        """The reply of the first that answers; BrokerError if it says no."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        failures: list[tuple[str, MQError]] = []
        for left, address in zip(
            range(len(self._addresses), 0, -1), list(self._addresses), strict=True
        ):
            try:
                # A fair share of the time: a dead one must leave some to the next.
                share = (deadline - loop.time()) / left
                return await self._connections.request(address, request, body, timeout=share)
            except (RemotingError, BrokerError) as error:
                if isinstance(error, BrokerError) and error.code not in FAILURE_CODES:
                    raise
                failures.append((str(address), error))
                self._pass_over(address)
        raise NoNameServer(question, tuple(failures))

    def _pass_over(self, address: Address) -> None:
        """Ask the others first from now on."""
        if len(self._addresses) > 1 and self._addresses[0] == address:
            self._addresses.append(self._addresses.pop(0))
            log.info("NameServer %s failed, %s is next", address, self._addresses[0])
