"""What files of users and rules mean, and how those that mean nothing are refused."""

import logging
from pathlib import Path

import pytest

from rocketpipe.broker.access.guard import AccessGuard
from rocketpipe.broker.access.rules_file import read_rules
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.signature import Credentials, signed_fields

USER = Credentials("some-user", "some-secret")
ACCOUNT = """
[[accounts]]
accessKey = "some-user"
secretKey = "some-secret"
"""
USERS = """
[[users]]
username = "some-user"
password = "some-secret"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "acl.toml"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def request(
    code: int = RequestCode.SEND_MESSAGE_V2,
    *,
    user: Credentials = USER,
    version: int = 513,
    **fields: str,
) -> RemotingCommand:
    signed = signed_fields(fields, b"body", user)
    return RemotingCommand(code, version=version, ext_fields=signed, body=b"body")


def refused(
    folder: Path, text: str, asked: RemotingCommand, *, source_ip: str = "127.0.0.1"
) -> str | None:
    """Why a request is refused, if it is: by ACL 1 where the file has accounts."""
    rules = read_rules(written(folder, text))
    try:
        if "accounts" in text:
            rules.plain.check(asked, source_ip)
        else:
            rules.auth.authenticate(asked)
            rules.auth.authorize(asked, "the-cluster", source_ip)
    except Refusal as refusal:
        assert USER.secret_key not in refusal.remark
        return refusal.remark.rpartition("Exception: ")[2]
    return None


def allowing(resource: str, actions: str = '"Pub"', more: str = "") -> str:
    return f"""
[[acls]]
subject = "User:some-user"
resources = ["{resource}"]
actions = [{actions}]
{more}
"""


DENY = 'decision = "Deny"'


@pytest.mark.parametrize(
    ("acls", "is_allowed"),
    [
        ("", False),
        (allowing("Topic:orders"), True),
        (allowing("topic:orders", '"pub"'), True),
        (allowing("Topic:order"), False),
        (allowing("Group:orders"), False),
        (allowing("Topic:orders", '"Sub"'), False),
        (allowing("Topic:orders", '"Sub", "Pub"'), True),
        (allowing("Topic:orders", '"All"'), True),
        (allowing("Topic:*"), True),
        (allowing("*", '"All"'), True),
        (allowing("Topic:ord*"), True),
        (allowing("Topic:ordinary*"), False),
        # The most exact decides, and of equals the denial.
        (allowing("*") + allowing("Topic:*", more=DENY), False),
        (allowing("Topic:*") + allowing("Topic:o*", more=DENY), False),
        (allowing("Topic:or*") + allowing("Topic:o*", more=DENY), True),
        (allowing("Topic:orders") + allowing("Topic:order*", more=DENY), True),
        (allowing("Topic:orders") + allowing("Topic:orders", more=DENY), False),
        (allowing("Topic:orders", more=DENY) + allowing("Topic:orders"), False),
        # Of defaults only where no other fits.
        (allowing("Topic:orders", more=DENY + '\npolicyType = "Default"'), False),
        (
            allowing("Topic:orders", more=DENY + '\npolicyType = "Default"') + allowing("Topic:*"),
            True,
        ),
        (allowing("Topic:orders", more='sourceIps = ["127.0.0.1"]'), True),
        (allowing("Topic:orders", more='sourceIps = ["10.0.0.0/8", "127.0.0.0/8"]'), True),
        (allowing("Topic:orders", more='sourceIps = ["10.0.0.0/8"]'), False),
        (allowing("Topic:orders", more='sourceIps = ["::1"]'), False),
    ],
)
def test_rules_of_acl_2(tmp_path: Path, acls: str, is_allowed: bool) -> None:
    assert (refused(tmp_path, USERS + acls, request(b="orders")) is None) == is_allowed


def test_a_super_user_needs_no_rules(tmp_path: Path) -> None:
    assert refused(tmp_path, USERS + 'userType = "Super"', request(b="orders")) is None


def test_old_clients_do_not_sign_that_a_query_is_by_unique_id(tmp_path: Path) -> None:
    fields = request(RequestCode.QUERY_MESSAGE, topic="orders").ext_fields
    fields["_UNIQUE_KEY_QUERY"] = "true"
    for version, is_signed in ((399, True), (401, False)):
        command = RemotingCommand(
            RequestCode.QUERY_MESSAGE, version=version, ext_fields=fields, body=b"body"
        )
        why = refused(tmp_path, USERS + allowing("*", '"All"'), command)
        assert why == (None if is_signed else "check signature failed.")
        assert refused(tmp_path, ACCOUNT + 'defaultTopicPerm = "SUB"', command) is None


@pytest.mark.parametrize(
    ("rights", "why"),
    [
        ("", "No default permission for topic:orders"),
        ('defaultTopicPerm = "PUB"', None),
        ('defaultTopicPerm = "SUB"', "No default permission for topic:orders"),
        ('defaultTopicPerm = "SUB|PUB"', None),
        ('topicPerms = ["orders=PUB"]', None),
        ('topicPerms = [" orders = PUB|SUB "]', None),
        ('defaultTopicPerm = "PUB"\ntopicPerms = ["orders=DENY"]', "No default permission for"),
        ('groupPerms = ["orders=PUB"]', "No default permission for topic:orders"),
        ("admin = true", None),
        ('admin = true\ntopicPerms = ["others=PUB"]', "No default permission for topic:orders"),
        ('whiteRemoteAddress = "127.0.0.*"', None),
    ],
)
def test_rights_of_acl_1(tmp_path: Path, rights: str, why: str | None) -> None:
    found = refused(tmp_path, ACCOUNT + rights, request(b="orders"))
    assert found is None if why is None else (found or "").startswith(why)


def test_from_a_white_address_nothing_is_asked(tmp_path: Path) -> None:
    text = 'globalWhiteRemoteAddresses = ["10.0.0.*"]\naccounts = []'
    anonymous = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert refused(tmp_path, text, anonymous, source_ip="10.0.0.9") is None
    assert refused(tmp_path, text, anonymous) == "No accessKey is configured"


def test_traces_may_be_written_by_all_who_are_known(tmp_path: Path) -> None:
    assert refused(tmp_path, ACCOUNT, request(b="RMQ_SYS_TRACE_TOPIC")) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("users = [", "it is not TOML"),
        ("acounts = []", "acounts: it is not known here"),
        ("users = 3", r"users: it must be written as \[\[users\]\]"),
        ('[[users]]\nusername = "x"', r"users\[1\].password: it is missing"),
        ('[[users]]\nusername = "x"\npassword = ""', "password: it may not be empty"),
        ('[[users]]\nusername = "x"\npassword = 7', "password: it must be text"),
        (USERS + "userTyp = 'Super'", r"users\[1\].userTyp: it is not known here"),
        (USERS + "userType = 'Root'", "it must be one of Super, Normal"),
        (USERS + USERS, r"users\[2\].username: another user has it"),
        (allowing("Topic:x"), "the name of a user"),
        (USERS + allowing("Topics:x"), "Topic:, Group: or Cluster:"),
        (USERS + allowing("Topic:x", '"Write"'), "actions: it must be one of All, Pub"),
        (USERS + allowing("Topic:x", ""), "actions: it may not be empty"),
        (USERS + allowing("Topic:x", more='sourceIps = ["here"]'), "sourceIps: each is an address"),
        ("[[accounts]]\naccessKey = 'short'\nsecretKey = 'long-enough'", "at least 7 characters"),
        (ACCOUNT + ACCOUNT, "another account has it"),
        (ACCOUNT + 'admin = "yes"', "admin: it must be true or false"),
        (ACCOUNT + 'topicPerms = ["x"]', "write it as in"),
        (ACCOUNT + 'topicPerms = ["x=WRITE"]', "a right is DENY, PUB, SUB"),
        (ACCOUNT + 'whiteRemoteAddress = "300.1.1.1"', "whiteRemoteAddress: an address has a part"),
        ('globalWhiteRemoteAddresses = ["1.2.3"]', "the right number of parts"),
        ('innerClient = "nobody"', "innerClient: no account and no user has this name"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_without_telling_secrets(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(InvalidSetting, match=why) as caught:
        read_rules(written(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "acl.toml"))
    assert USER.secret_key not in str(caught.value)


def test_rules_and_users_keep_their_secrets(tmp_path: Path) -> None:
    rules = read_rules(written(tmp_path, ACCOUNT.replace("some-user", "an-account") + USERS))
    assert USER.secret_key not in repr(rules)


def test_a_file_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, USERS)
    read_rules(path)
    assert not caplog.records
    path.chmod(0o644)
    read_rules(path)
    assert "others than its owner can read it" in caplog.text


def guard_of(path: Path, **settings: bool) -> AccessGuard:
    settings = settings or {"authentication_enabled": True, "authorization_enabled": True}
    guard = AccessGuard(BrokerSettings(acl_file=str(path), **settings))  # type: ignore[arg-type]
    guard.load()
    return guard


def code_of(guard: AccessGuard, asked: RemotingCommand) -> int:
    try:
        guard._check(asked, "127.0.0.1")
    except Refusal as refusal:
        return refusal.code
    return ResponseCode.SUCCESS


def test_a_file_that_changed_is_read_again_and_a_broken_one_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    path = written(tmp_path, USERS + allowing("Topic:orders"))
    guard, asked = guard_of(path), request(b="orders")
    assert code_of(guard, asked) == ResponseCode.SUCCESS

    def reload(*, errors: int) -> None:
        caplog.clear()
        guard.reload()
        guard.reload()  # which says nothing more
        assert len(caplog.records) == errors

    path.write_text("users = [")
    reload(errors=1)
    assert code_of(guard, asked) == ResponseCode.SUCCESS
    path.unlink()
    reload(errors=1)
    assert code_of(guard, asked) == ResponseCode.SUCCESS
    written(tmp_path, USERS)
    reload(errors=0)
    assert code_of(guard, asked) == ResponseCode.NO_PERMISSION
    written(tmp_path, USERS + allowing("Topic:*"))
    reload(errors=0)
    assert code_of(guard, asked) == ResponseCode.SUCCESS
    assert USER.secret_key not in caplog.text


def test_requests_of_a_white_list_are_not_checked(tmp_path: Path) -> None:
    path = written(tmp_path, USERS)
    settings = BrokerSettings.from_properties(
        {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationWhitelist": "310, 34",
            "authorizationWhitelist": "310",
            "aclFile": str(path),
        }
    )
    assert BrokerSettings.from_properties(settings.to_properties()) == settings
    guard = AccessGuard(settings)
    guard.load()
    anonymous = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields={"b": "orders"})
    assert code_of(guard, anonymous) == ResponseCode.SUCCESS
    anonymous.code = RequestCode.SEND_MESSAGE
    assert code_of(guard, anonymous) == ResponseCode.NO_PERMISSION


def test_without_authorization_whoever_is_known_may_do_all(tmp_path: Path) -> None:
    guard = guard_of(written(tmp_path, USERS), authentication_enabled=True)
    assert code_of(guard, request(b="orders")) == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "settings",
    [
        {"acl_enable": True},
        {"authentication_enabled": True},
        {"acl_enable": True, "authentication_enabled": True, "acl_file": "x"},
        {"authorization_enabled": True, "acl_file": "x"},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting):
        BrokerSettings(**settings)  # type: ignore[arg-type]
