"""ACL 2 of 5.3 and later: users, and which of their actions on which resources are allowed."""

import ipaddress
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final, NamedTuple

from rocketpipe.broker.access.needs import Action, Kind, Need, needs_of
from rocketpipe.broker.access.plain import UNIQUE_KEY_QUERY
from rocketpipe.broker.access.tables import Table
from rocketpipe.codes import ResponseCode
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.signature import ACCESS_KEY, Credentials, is_signed_by

V4_9_3: Final = 399  # up to which clients did not sign UNIQUE_KEY_QUERY

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class UserType(StrEnum):
    SUPER = "Super"  # may do everything
    NORMAL = "Normal"


class UserStatus(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"  # looked at where no custom policy fits


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    username: str
    password: str = field(repr=False)
    user_type: UserType
    user_status: UserStatus

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.username, self.password)


class Resource(NamedTuple):
    """`*`, `Topic:*`, `Topic:order*` or `Topic:orders`."""

    kind: Kind
    name: str
    is_prefix: bool

    def fits(self, need: Need) -> bool:
        if self.kind is Kind.ANY:
            return True
        if self.kind is not need.kind:
            return False
        return need.name.startswith(self.name) if self.is_prefix else need.name == self.name

    @property
    def vagueness(self) -> tuple[bool, bool, int]:
        """The least vague of those that fit decides: a whole name, then the longest prefix."""
        return self.kind is Kind.ANY, self.is_prefix, -len(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    resource: Resource
    actions: frozenset[Action]
    sources: tuple[IpNetwork, ...]  # none: from anywhere
    decision: Decision
    policy: PolicyType

    def fits(self, need: Need, source_ip: str) -> bool:
        return (
            self.resource.fits(need)
            and (Action.ALL in self.actions or not self.actions.isdisjoint(need.actions))
            and (not self.sources or _is_from(source_ip, self.sources))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthRules:
    """What the file says for ACL 2."""

    users: Mapping[str, User]
    entries: Mapping[str, tuple[Entry, ...]]  # by user

    def authenticate(self, request: RemotingCommand) -> None:
        """Refusal, in the words of 5.5.0, unless the request is of who it says it is."""
        fields = request.ext_fields
        username = fields.get(ACCESS_KEY)
        if not username:
            raise _refusal("username cannot be null.")
        user = self.users.get(username)
        if user is None:
            raise _refusal(f"User:{username} is not found.")
        if user.user_status is UserStatus.DISABLE:
            raise _refusal(f"User:{username} is disabled.")
        if request.version <= V4_9_3 and UNIQUE_KEY_QUERY in fields:
            fields = {name: text for name, text in fields.items() if name != UNIQUE_KEY_QUERY}
        if not is_signed_by(fields, request.body, user.password):
            raise _refusal("check signature failed.")

    def authorize(self, request: RemotingCommand, cluster_name: str, source_ip: str) -> None:
        """Refusal unless an authenticated user may do what is asked, from where it is asked."""
        username = request.ext_fields.get(ACCESS_KEY, "")
        user = self.users.get(username)
        if user is not None and user.user_type is UserType.SUPER:
            return
        for need in needs_of(request, cluster_name):
            entry = self._deciding(username, need, source_ip)
            if entry is None or entry.decision is Decision.DENY:
                why = "no matched policies." if entry is None else "the decision is deny."
                raise _refusal(
                    f"User:{username} has no permission to access {need} from {source_ip}, {why}"
                )

    def _deciding(self, username: str, need: Need, source_ip: str) -> Entry | None:
        fitting = [entry for entry in self.entries.get(username, ()) if entry.fits(need, source_ip)]
        # Of several that are as exact, a denial has priority.
        return min(
            fitting,
            key=lambda entry: (
                entry.policy is PolicyType.DEFAULT,
                entry.resource.vagueness,
                entry.decision is Decision.ALLOW,
            ),
            default=None,
        )


def read_auth_rules(file: Table) -> AuthRules:
    """The users and rules, by the names that mqadmin's createUser and createAcl give them."""
    users: dict[str, User] = {}
    for table in file.tables("users"):
        user = User(
            username=table.text("username"),
            password=table.text("password"),
            user_type=table.word("userType", UserType, UserType.NORMAL),
            user_status=table.word("userStatus", UserStatus, UserStatus.ENABLE),
        )
        for name in ("username", "password"):
            if not getattr(user, name):
                raise table.wrong(name, "it may not be empty")
        if user.username in users:
            raise table.wrong("username", "another user has it")
        users[user.username] = user
        table.end()
    entries: dict[str, tuple[Entry, ...]] = {}
    for table in file.tables("acls"):
        kind, _, username = table.text("subject").partition(":")
        if kind != "User" or username not in users:
            raise table.wrong("subject", "it must be `User:` and the name of a user")
        entries[username] = entries.get(username, ()) + tuple(_read_entries(table))
    return AuthRules(users=users, entries=entries)


def _read_entries(table: Table) -> list[Entry]:
    actions = frozenset(table.words("actions", Action))
    resources = [_read_resource(table, text) for text in table.texts("resources")]
    if not actions or not resources:
        raise table.wrong("resources" if actions else "actions", "it may not be empty")
    sources = tuple(_read_source(table, text) for text in table.texts("sourceIps"))
    decision = table.word("decision", Decision, Decision.ALLOW)
    policy = table.word("policyType", PolicyType, PolicyType.CUSTOM)
    table.end()
    return [
        Entry(resource=each, actions=actions, sources=sources, decision=decision, policy=policy)
        for each in resources
    ]


def _read_resource(table: Table, text: str) -> Resource:
    if text == "*":
        return Resource(Kind.ANY, "", True)
    kind, colon, name = text.partition(":")
    kinds = {each.lower(): each for each in Kind if each is not Kind.ANY}
    if not colon or not name or kind.lower() not in kinds:
        raise table.wrong("resources", "each is `*`, or Topic:, Group: or Cluster: and a name")
    return Resource(kinds[kind.lower()], name.removesuffix("*"), name.endswith("*"))


def _read_source(table: Table, text: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise table.wrong("sourceIps", "each is an address, or a range of them as CIDR") from None


def _is_from(source_ip: str, sources: tuple[IpNetwork, ...]) -> bool:
    try:
        address = ipaddress.ip_address(source_ip)
    except ValueError:
        return False
    return any(address in network for network in sources)


def _refusal(why: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, why)
