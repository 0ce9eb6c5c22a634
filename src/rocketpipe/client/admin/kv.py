"""What NameServers keep for others: values by namespace and key."""

from rocketpipe.client.admin.asking import Asking
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.wire.requests.nameserver import (
    DeleteKvConfig,
    GetKvConfig,
    GetKvlistByNamespace,
    PutKvConfig,
)


class KvAdmin(Asking):
    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Let every NameServer know it."""
        request = PutKvConfig(namespace=namespace, key=key, value=value)
        await self._ask_every_name_server(request, doing=f"put {key!r} into {namespace!r}")

    async def kv(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        request = GetKvConfig(namespace=namespace, key=key)
        try:
            reply = await self._ask_name_server(request, question=f"{key!r} of {namespace!r}")
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return reply.value

    async def kv_list(self, namespace: str) -> dict[str, str]:
        """All that is in a namespace; there may be nothing."""
        request = GetKvlistByNamespace(namespace=namespace)
        try:
            reply = await self._ask_name_server(request, question=f"the values of {namespace!r}")
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return dict(sorted(reply.table.items()))

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Let every NameServer forget it; that it never knew it is no error."""
        request = DeleteKvConfig(namespace=namespace, key=key)
        await self._ask_every_name_server(request, doing=f"delete {key!r} of {namespace!r}")
