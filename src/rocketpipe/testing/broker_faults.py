"""The faults of a broker in another process, which runs with `rocketpipe serve --faults`."""

import json
from typing import Any

from rocketpipe.broker.faults import CONTROL_FAULTS, Fault, FaultOrders, decode_faults
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.sync.loop_thread import run_alone
from rocketpipe.wire.frame import RemotingCommand


class BrokerFaults(FaultOrders):
    """The faults of the broker at this address: `BrokerFaults("127.0.0.1:10911").delay(0.5)`.

    BrokerError when it does not allow that. A delay may not be a function here.
    """

    def __init__(self, address: str, *, timeout: float = 3.0) -> None:
        self._address = Address.parse(address)
        self._timeout = timeout

    def _order(self, order: dict[str, Any]) -> list[Fault]:
        return run_alone(self._ask(json.dumps(order).encode()))

    async def _ask(self, body: bytes) -> list[Fault]:
        connection = await connect(AsyncioNetwork(), self._address, timeout=self._timeout)
        try:
            command = RemotingCommand(CONTROL_FAULTS, {}, body)
            answer = await connection.invoke(command, timeout=self._timeout)
        finally:
            await connection.close()
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, str(self._address))
        return decode_faults(answer.body)
