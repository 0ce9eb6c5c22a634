"""The end of a transaction, as its producer tells it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.transactions import NOT_SET, Transactions
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.sending import EndTransaction
from rocketpipe.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _EndProcessor(broker.transactions, is_slave=broker.settings.is_slave)
    return {RequestCode.END_TRANSACTION: processor.end}


class _EndProcessor:
    def __init__(self, transactions: Transactions, *, is_slave: bool) -> None:
        self._transactions = transactions
        self._is_slave = is_slave

    async def end(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = EndTransaction.from_ext_fields(request.ext_fields)
        if self._is_slave:
            raise Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SET)
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            await self._transactions.commit(header)
            return request.answer(ResponseCode.SUCCESS)
        if header.commit_or_rollback == TRANSACTION_ROLLBACK:
            await self._transactions.roll_back(header)
            return request.answer(ResponseCode.SUCCESS, NOT_SET)
        return None  # not known yet, says the producer: it will be asked
