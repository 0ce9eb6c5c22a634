"""ACL 1, the plugin of 4.x: accounts with rights on topics and groups (PlainPermissionManager).

As there, who comes from a white address is not asked for anything; requests other than those named
here need no right but a key; batches (320) are among them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import IntFlag
from typing import Final

from rocketpipe.broker.access.addresses import AddressFilter, address_filter
from rocketpipe.broker.access.tables import Table
from rocketpipe.broker.names import RETRY_PREFIX, TRACE_TOPIC
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.heartbeat import HeartbeatData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.signature import ACCESS_KEY, Credentials, is_signed_by

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
KEY_LENGTH_MIN: Final = 7  # 4.x takes no shorter keys

_ADMIN_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)


class Right(IntFlag):
    DENY = 0
    PUB = 1
    SUB = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    access_key: str
    secret_key: str = field(repr=False)
    is_white: AddressFilter  # who comes from there is believed without a signature
    is_admin: bool
    default_topic: Right
    default_group: Right
    rights: Mapping[str, Right]  # by topic; groups by their retry topic

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.access_key, self.secret_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRules:
    """What the file says for ACL 1."""

    white: tuple[AddressFilter, ...]
    accounts: Mapping[str, Account]

    def check(self, request: RemotingCommand, source_ip: str) -> None:
        """Refusal, in the words of 4.9.4, unless it is allowed."""
        if any(is_white(source_ip) for is_white in self.white):
            return
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            raise _refusal("No accessKey is configured")
        account = self.accounts.get(access_key)
        if account is None:
            raise _refusal(f"No acl config for {access_key}")
        if account.is_white(source_ip):
            return
        signed = {k: v for k, v in request.ext_fields.items() if k != UNIQUE_KEY_QUERY}
        if not is_signed_by(signed, request.body, account.secret_key):
            raise _refusal(f"Check signature failed for accessKey={access_key}")
        needs = dict(_needs_of(request))
        if needs.get(TRACE_TOPIC) is not Right.PUB:  # anyone may write traces
            _check_rights(request.code, needs, account)


def read_plain_rules(file: Table) -> PlainRules:
    """The addresses and accounts, by the names of 4.x's plain_acl.yml."""
    white = []
    for pattern in file.texts("globalWhiteRemoteAddresses"):
        try:
            white.append(address_filter(pattern))
        except InvalidSetting as error:
            raise file.wrong("globalWhiteRemoteAddresses", str(error)) from None
    accounts: dict[str, Account] = {}
    for table in file.tables("accounts"):
        account = _read_account(table)
        if account.access_key in accounts:
            raise table.wrong("accessKey", "another account has it")
        accounts[account.access_key] = account
    return PlainRules(white=tuple(white), accounts=accounts)


def _read_account(table: Table) -> Account:
    keys = {name: table.text(name) for name in ("accessKey", "secretKey")}
    for name, key in keys.items():
        if len(key) < KEY_LENGTH_MIN:
            raise table.wrong(name, f"it must have at least {KEY_LENGTH_MIN} characters")
    try:
        is_white = address_filter(table.text("whiteRemoteAddress", ""))
    except InvalidSetting as error:
        raise table.wrong("whiteRemoteAddress", str(error)) from None
    account = Account(
        access_key=keys["accessKey"],
        secret_key=keys["secretKey"],
        is_white=is_white,
        is_admin=table.flag("admin", default=False),
        default_topic=_right(table, "defaultTopicPerm", table.text("defaultTopicPerm", "DENY")),
        default_group=_right(table, "defaultGroupPerm", table.text("defaultGroupPerm", "DENY")),
        rights={
            **_rights(table, "groupPerms", RETRY_PREFIX),
            **_rights(table, "topicPerms", ""),
        },
    )
    table.end()
    return account


def _rights(table: Table, name: str, prefix: str) -> dict[str, Right]:
    rights = {}
    for text in table.texts(name):
        resource, equals, right = text.partition("=")
        if not equals or not resource.strip():
            raise table.wrong(name, "write it as in `name=PUB|SUB`")
        rights[prefix + resource.strip()] = _right(table, name, right)
    return rights


def _right(table: Table, name: str, text: str) -> Right:
    total = Right.DENY
    words = [word.strip() for word in text.split("|")]
    for word in words:
        if word not in Right.__members__ or (word == "DENY" and len(words) > 1):
            raise table.wrong(name, "a right is DENY, PUB, SUB or PUB|SUB")
        total |= Right[word]
    return total


def _check_rights(code: int, needs: Mapping[str, Right], account: Account) -> None:
    if code in _ADMIN_CODES and not account.is_admin:
        raise _refusal(
            f"Need admin permission for request code={code}, but accessKey={account.access_key}"
            " is not"
        )
    if account.is_admin and not account.rights:
        return
    for resource, needed in needs.items():
        is_group = resource.startswith(RETRY_PREFIX)
        default = account.default_group if is_group else account.default_topic
        if not needed & account.rights.get(resource, default):
            name = f"group:{resource[len(RETRY_PREFIX) :]}" if is_group else f"topic:{resource}"
            raise _refusal(f"No default permission for {name}")


def _needs_of(request: RemotingCommand) -> Iterator[tuple[str, Right]]:
    """Topics, and groups as their retry topics; what is not named is not needed."""
    fields = request.ext_fields
    match request.code:
        case RequestCode.SEND_MESSAGE:
            yield from _to_send(fields.get("topic"), fields.get("group"))
        case RequestCode.SEND_MESSAGE_V2:
            yield from _to_send(fields.get("b"), fields.get("a"))
        case RequestCode.CONSUMER_SEND_MSG_BACK:
            yield from _to_read(None, fields.get("group"))
        case RequestCode.PULL_MESSAGE | RequestCode.UPDATE_CONSUMER_OFFSET:
            yield from _to_read(fields.get("topic"), fields.get("consumerGroup"))
        case RequestCode.QUERY_MESSAGE:
            yield from _to_read(fields.get("topic"), None)
        case RequestCode.UNREGISTER_CLIENT | RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            yield from _to_read(None, fields.get("consumerGroup"))
        case RequestCode.HEART_BEAT:
            for data in HeartbeatData.decode(request.body).consumer_data_set:
                yield from _to_read(None, data.group_name)
                for subscription in data.subscription_data_set:
                    yield from _to_read(subscription.topic, None)


def _to_send(topic: str | None, group: str | None) -> Iterator[tuple[str, Right]]:
    if topic is not None and topic.startswith(RETRY_PREFIX):
        yield from _to_read(None, group)
    elif topic is not None:
        yield topic, Right.PUB


def _to_read(topic: str | None, group: str | None) -> Iterator[tuple[str, Right]]:
    if group is not None:
        yield RETRY_PREFIX + group, Right.SUB
    if topic is not None:
        yield topic, Right.SUB


def _refusal(why: str) -> Refusal:
    # 4.x answers with the name of its exception, and a place in its code, which we leave out.
    return Refusal(ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {why}")
