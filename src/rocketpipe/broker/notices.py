"""Tells the members of a consumer group that it has changed, so that they share its queues anew."""

import asyncio
import logging

from rocketpipe.broker.clients import Clients
from rocketpipe.broker.groups import SubscriptionGroups
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.errors import MQError
from rocketpipe.wire.bodies.heartbeat import MessageModel
from rocketpipe.wire.requests.callbacks import NotifyConsumerIdsChanged

log = logging.getLogger(__name__)

ROOM_TIMEOUT = 0.01  # a member whose connection is full will look by itself before long


class GroupNotices:
    """One notice to each member for all the changes of one turn of the event loop."""

    def __init__(
        self, settings: BrokerSettings, clients: Clients, groups: SubscriptionGroups
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._groups = groups
        self._changed: dict[str, None] = {}
        self._telling: asyncio.Task[None] | None = None
        self._is_closed = False
        clients.on_consumers_changed.append(self._group_changed)

    def close(self) -> None:
        """Tell nobody any more: when a broker closes, its clients lose each other one by one."""
        self._is_closed = True
        if self._telling is not None:
            self._telling.cancel()

    def _group_changed(self, name: str) -> None:
        group, config = self._clients.consumers.get(name), self._groups.table.get(name)
        if (
            self._is_closed
            or group is None  # nobody is left
            or group.data.message_model is MessageModel.BROADCASTING  # everybody reads everything
            or not self._settings.notify_consumer_ids_changed_enable
            or (config is not None and not config.notify_consumer_ids_changed_enable)
        ):
            return
        self._changed[name] = None
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._changed:
                name, _ = self._changed.popitem()
                group = self._clients.consumers.get(name)
                for connection in list(group.members) if group is not None else ():
                    notice = NotifyConsumerIdsChanged(consumer_group=name).to_command()
                    try:
                        await connection.send_oneway(notice, timeout=ROOM_TIMEOUT)
                    except MQError as error:
                        log.info("group %s, a member was not told: %s", name, error)
        finally:
            self._telling = None
