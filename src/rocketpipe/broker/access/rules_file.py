"""The file of users and rules, in TOML: what it says for ACL 1 and for ACL 2."""

import logging
import stat
import tomllib
from pathlib import Path
from typing import Final

from rocketpipe.broker.access.auth import AuthRules, read_auth_rules
from rocketpipe.broker.access.plain import PlainRules, read_plain_rules
from rocketpipe.broker.access.tables import Table
from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.signature import Credentials

log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """All that the file says: of each generation only what is turned on is used."""

    plain: PlainRules
    auth: AuthRules
    inner_client: Credentials | None  # as whom brokers ask each other


def read_rules(path: Path) -> AccessRules:
    """What the file says, or InvalidSetting, which tells where it is wrong but no value of it."""
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise InvalidSetting(f"{path}: it is larger than {FILE_BYTES_MAX} bytes")
        table = Table("", tomllib.loads(content.decode()))
    except OSError as error:
        raise InvalidSetting(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InvalidSetting(f"{path}: it is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"{path}: it is not TOML: {error}") from None
    try:
        rules = _read_tables(table)
    except InvalidSetting as error:
        raise InvalidSetting(f"{path}: {error}") from None
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning("%s has secrets, and others than its owner can read it: chmod 600", path)
    return rules


def _read_tables(file: Table) -> AccessRules:
    inner_client = file.text("innerClient", "")
    plain, auth = read_plain_rules(file), read_auth_rules(file)
    file.end()
    credentials = None
    if inner_client:
        known = plain.accounts.get(inner_client) or auth.users.get(inner_client)
        if known is None:
            raise file.wrong("innerClient", "no account and no user has this name")
        credentials = known.credentials
    return AccessRules(plain=plain, auth=auth, inner_client=credentials)
