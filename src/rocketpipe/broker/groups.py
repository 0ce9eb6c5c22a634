"""The consumer groups of a broker: built in, created on first use, or by an administrator."""

import logging
from dataclasses import replace

from rocketpipe.broker.names import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX, group_fault
from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.clock import Clock
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpipe.wire.bodies.topics import DataVersion

log = logging.getLogger(__name__)


class SubscriptionGroups:
    """What groups there are and how; kept in config/subscriptionGroup.json, in Apache's form."""

    def __init__(self, settings: BrokerSettings, file: AtomicFile, clock: Clock) -> None:
        self.table: dict[str, SubscriptionGroupConfig] = {}  # to be read; changed here alone
        self.forbidden: dict[str, dict[str, int]] = {}  # by group and topic, bits
        self.data_version = DataVersion(timestamp=clock.wall_ms())
        self.saved = SavedTable(file, lambda: self.wrapper().encode())
        self._settings = settings
        self._clock = clock

    def load(self) -> None:
        """Take what was saved, and add what every broker has."""
        for name in BUILT_IN_GROUPS:
            self.table[name] = SubscriptionGroupConfig(group_name=name)
        if saved := self.saved.load(SubscriptionGroupWrapper.decode):
            self.table.update(saved.subscription_group_table)
            self.forbidden = saved.forbidden_table
            self.data_version = saved.data_version

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, created if absent and that is allowed."""
        config = self.table.get(group)
        if config is not None or not self._may_create(group):
            return config
        config = SubscriptionGroupConfig(group_name=group)
        self.put(config)
        return config

    def _may_create(self, group: str) -> bool:
        return (
            self._settings.auto_create_subscription_group or group.startswith(SYSTEM_GROUP_PREFIX)
        ) and (group_fault(group) is None and len(self.table) < self._settings.groups_max)

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or change one."""
        log.info("consumer group %s is now %s", config.group_name, config)
        self.table[config.group_name] = config
        self._bump()

    def delete(self, group: str) -> bool:
        """Whether there was one to delete."""
        if self.table.pop(group, None) is None:
            return False
        log.info("consumer group %s is deleted", group)
        self.forbidden.pop(group, None)
        self._bump()
        return True

    def replace_all(self, copied: SubscriptionGroupWrapper) -> None:
        """Become the copy of another broker's: what a slave does."""
        self.table = dict(copied.subscription_group_table)
        self.forbidden = copied.forbidden_table
        self.data_version = copied.data_version
        self.saved.changed()

    def wrapper(self) -> SubscriptionGroupWrapper:
        """All groups, as they are saved and told to slaves."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self.table,
            forbidden_table=self.forbidden,
            data_version=self.data_version,
        )

    def _bump(self) -> None:
        self.data_version = replace(
            self.data_version,
            timestamp=self._clock.wall_ms(),
            counter=self.data_version.counter + 1,
        )
        self.saved.changed()
