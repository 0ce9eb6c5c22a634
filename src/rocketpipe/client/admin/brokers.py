"""Brokers: how they are doing, their settings, and whether anybody may write to them."""

from collections.abc import Mapping

from rocketpipe.client.admin.asking import Asking
from rocketpipe.client.admin.values import BrokerRuntime
from rocketpipe.wire.config_text import format_config, parse_config
from rocketpipe.wire.requests.admin import GetBrokerConfig, UpdateBrokerConfig
from rocketpipe.wire.requests.nameserver import AddWritePermOfBroker, WipeWritePermOfBroker


class BrokerAdmin(Asking):
    """A broker is named, which means its master, or given as `host:port`."""

    async def broker_runtime(self, broker: str) -> BrokerRuntime:
        """How it is doing."""
        return await self._runtime(await self._server(broker))

    async def broker_config(self, broker: str) -> dict[str, str]:
        """All its settings, by RocketMQ's own names."""
        doing = f"read the settings of broker {broker!r}"
        text = await self._ask(await self._server(broker), GetBrokerConfig(), doing=doing)
        return dict(sorted(parse_config(text).items()))

    async def change_broker_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change some of its settings. An Apache broker writes them into its own file."""
        doing = f"change the settings of broker {broker!r}"
        body = format_config(changes)
        await self._ask(await self._server(broker), UpdateBrokerConfig(), body, doing=doing)

    async def wipe_write_permission(self, broker: str) -> int:
        """Let no producer find a broker any more, by its name; how many topics that concerns.

        The NameServers forget it when the broker registers anew after a change of its topics.
        """
        await self._masters(brokers=[broker])
        request = WipeWritePermOfBroker(broker_name=broker)
        doing = f"wipe the write permission of broker {broker!r}"
        replies = await self._ask_every_name_server(request, doing=doing)
        return max(reply.wipe_topic_count for reply in replies.values())

    async def restore_write_permission(self, broker: str) -> int:
        """Undo `wipe_write_permission`; how many topics that concerns."""
        await self._masters(brokers=[broker])
        request = AddWritePermOfBroker(broker_name=broker)
        doing = f"restore the write permission of broker {broker!r}"
        replies = await self._ask_every_name_server(request, doing=doing)
        return max(reply.add_topic_count for reply in replies.values())
