"""Stands before the handlers of a broker: lets through what its file of users and rules allows."""

import asyncio
import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketpipe.broker.faults import CONTROL_FAULTS
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Outcome
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.signature import Credentials

if TYPE_CHECKING:
    from rocketpipe.broker.access.rules_file import AccessRules

log = logging.getLogger(__name__)

RELOAD_INTERVAL: Final = 0.5  # how often the file is looked at


class AccessGuard:
    """Checks each request by ACL 1 or ACL 2, whichever is turned on, or by none."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._rules: AccessRules | None = None
        self._seen: object = None

    @property
    def is_on(self) -> bool:
        return self._settings.acl_enable or self._settings.authentication_enabled

    @property
    def inner_client(self) -> Credentials | None:
        return self._rules.inner_client if self._rules is not None else None

    def load(self) -> None:
        """Read the file, if any ACL is turned on, or InvalidSetting."""
        if self.is_on:
            path = self._path()
            self._seen = _stamp(path)
            self._rules = _read_rules(path)

    async def reload_forever(self) -> None:
        """Read the file again when it has changed; while it is broken the old rules stay."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL)
            if self.is_on:
                self.reload()

    def reload(self) -> None:
        path = self._path()
        if (stamp := _stamp(path)) == self._seen:
            return
        self._seen = stamp
        try:
            self._rules = _read_rules(path)
        except InvalidSetting as error:
            log.error("the old rules of access stay: %s", error)
        else:
            log.info("%s has changed, and was read again", path)

    def around(self, dispatch: Handler) -> Handler:
        """A handler that refuses who may not ask."""
        if not self.is_on:
            return dispatch

        def handle(
            connection: Connection, request: RemotingCommand
        ) -> Outcome | Awaitable[Outcome]:
            if request.code != CONTROL_FAULTS:  # whoever can connect may use that, where it is on
                self._check(request, connection.address.rpartition(":")[0].strip("[]"))
            return dispatch(connection, request)

        return handle

    def _check(self, request: RemotingCommand, source_ip: str) -> None:
        rules, settings = self._rules, self._settings
        assert rules is not None
        if settings.acl_enable:
            rules.plain.check(request, source_ip)
            return
        if request.code not in settings.authentication_whitelist:
            rules.auth.authenticate(request)
        if settings.authorization_enabled and request.code not in settings.authorization_whitelist:
            rules.auth.authorize(request, settings.broker_cluster_name, source_ip)

    def _path(self) -> Path:
        assert self._settings.acl_file is not None  # the settings see to that
        return Path(self._settings.acl_file)


def _read_rules(path: Path) -> "AccessRules":
    # Late, as most brokers check nobody, and are to start quickly.
    from rocketpipe.broker.access.rules_file import read_rules

    return read_rules(path)


def _stamp(path: Path) -> object:
    """Something that differs when the file was changed or replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode
