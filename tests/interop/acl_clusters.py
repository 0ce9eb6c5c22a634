"""Clusters that check who asks, all with the same users and rules: Apache's of each generation of
ACL, and our own with either."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketpipe import Credentials
from rocketpipe.codes import ResponseCode
from rocketpipe.testing import EmbeddedCluster
from rocketpipe.wire.frame import RemotingCommand
from tests.apache.cluster import ApacheCluster
from tests.apache.launch import java_command
from tests.apache.require import require
from tests.interop.clusters import TIMEOUT, Reader, Server

ADMIN = Credentials("admin-user", "admin-secret")
WRITER = Credentials("writer-user", "writer-secret")  # to TOPIC
READER = Credentials("reader-user", "reader-secret")  # of TOPIC, in GROUP
NEAR = Credentials("near-user", "near-secret")  # to TOPIC, from this machine
FAR = Credentials("far-user", "far-secret-1")  # the same, from another one
DENIED = Credentials("denied-user", "denied-secret")  # to all but FORBIDDEN
STRANGER = Credentials("stranger-user", "stranger-secret")  # to nothing
DISABLED = Credentials("disabled-user", "disabled-secret")  # under ACL 2
TOPIC, FORBIDDEN, GROUP = "acl-open", "acl-closed", "acl-readers"

# Of each user, by the names of RocketMQ's requests: resources, actions, source addresses, decision.
RULES_2: dict[Credentials, list[tuple[list[str], list[str], list[str], str]]] = {
    WRITER: [([f"Topic:{TOPIC}"], ["Pub"], [], "Allow")],
    READER: [([f"Topic:{TOPIC}", f"Group:{GROUP}"], ["Sub", "Get"], [], "Allow")],
    NEAR: [([f"Topic:{TOPIC}"], ["Pub"], ["10.1.2.3", "127.0.0.0/8"], "Allow")],
    FAR: [([f"Topic:{TOPIC}"], ["Pub"], ["10.1.2.3", "10.2.0.0/16"], "Allow")],
    DENIED: [
        (["Topic:*"], ["Pub", "Sub"], [], "Allow"),
        (["Topic:acl-c*"], ["All"], [], "Deny"),
        ([f"Topic:{FORBIDDEN}-not"], ["All"], [], "Allow"),
    ],
    STRANGER: [],
    DISABLED: [],
}

# By the names of plain_acl.yml.
RULES_1: dict[Credentials, dict[str, Any]] = {
    ADMIN: {"admin": True},
    WRITER: {"topicPerms": [f"{TOPIC}=PUB"]},
    READER: {"topicPerms": [f"{TOPIC}=SUB"], "groupPerms": [f"{GROUP}=SUB"]},
    NEAR: {"whiteRemoteAddress": "127.0.0.*"},
    FAR: {"whiteRemoteAddress": "10.0.0.{1,2}", "topicPerms": [f"{TOPIC}=DENY"]},
    DENIED: {"defaultTopicPerm": "PUB|SUB", "topicPerms": [f"{FORBIDDEN}=DENY"]},
    STRANGER: {"defaultTopicPerm": "DENY", "defaultGroupPerm": "DENY"},
}

_AUTH_CREATE_USER, _AUTH_UPDATE_USER, _AUTH_CREATE_ACL = 3001, 3002, 3006


@dataclass(frozen=True)
class AclCluster:
    namesrv: str
    broker: str  # its address
    generation: int  # of ACL: 1 or 2
    version: str


KINDS = {"5.5.0": 2, "4.9.4": 1, "embedded-2": 2, "embedded-1": 1}


@contextmanager
def acl_cluster_of(kind: str, folder: Path) -> Iterator[AclCluster]:
    starts: dict[str, Callable[[Path], ApacheCluster | EmbeddedCluster]] = {
        "5.5.0": _apache_with_auth,
        "4.9.4": _apache_with_plugin,
        "embedded-2": _embedded_with_auth,
        "embedded-1": _embedded_with_accounts,
    }
    with starts[kind](folder) as cluster:
        asyncio.run(_make_topics(cluster.namesrv, cluster.brokers))
        yield AclCluster(cluster.namesrv, cluster.brokers[0].address, KINDS[kind], cluster.version)


def write_acl_file(path: Path, *, generation: int) -> None:
    """Our own file with these users and rules."""
    path.touch(mode=0o600)
    path.write_text(_accounts_toml() if generation == 1 else _users_toml())


def _embedded_with_auth(folder: Path) -> EmbeddedCluster:
    write_acl_file(folder / "acl.toml", generation=2)
    settings = {"authenticationEnabled": True, "authorizationEnabled": True}
    return EmbeddedCluster(1, settings={**settings, "aclFile": folder / "acl.toml"})


def _embedded_with_accounts(folder: Path) -> EmbeddedCluster:
    write_acl_file(folder / "acl.toml", generation=1)
    return EmbeddedCluster(1, settings={"aclEnable": True, "aclFile": folder / "acl.toml"})


def _users_toml() -> str:
    lines = [
        "[[users]]",
        f'username = "{ADMIN.access_key}"',
        f'password = "{ADMIN.secret_key}"',
        'userType = "Super"',
    ]
    for user, entries in RULES_2.items():
        lines += [
            "[[users]]",
            f'username = "{user.access_key}"',
            f'password = "{user.secret_key}"',
            f'userStatus = "{"disable" if user is DISABLED else "enable"}"',
        ]
        for resources, actions, sources, decision in entries:
            lines += [
                "[[acls]]",
                f'subject = "User:{user.access_key}"',
                f"resources = {json.dumps(resources)}",
                f"actions = {json.dumps(actions)}",
                f"sourceIps = {json.dumps(sources)}",
                f'decision = "{decision}"',
            ]
    return "\n".join(lines)


def _accounts_toml() -> str:
    lines = []
    for user, rights in RULES_1.items():
        lines += ["[[accounts]]", f'accessKey = "{user.access_key}"']
        lines += [f'secretKey = "{user.secret_key}"']
        lines += [f"{name} = {json.dumps(value)}" for name, value in rights.items()]
    return "\n".join(lines)


def _apache_with_auth(folder: Path) -> ApacheCluster:
    """5.x: users and permissions are made by requests of the first user."""
    require("5.5.0")
    providers = "org.apache.rocketmq.auth"
    cluster = ApacheCluster(
        "5.5.0",
        brokers=1,
        settings={
            "authenticationEnabled": "true",
            "authenticationProvider": f"{providers}.authentication.provider"
            ".DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{providers}.authentication.provider"
            ".LocalAuthenticationMetadataProvider",
            "initAuthenticationUser": json.dumps(
                {"username": ADMIN.access_key, "password": ADMIN.secret_key}
            ),
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": ADMIN.access_key, "secretKey": ADMIN.secret_key}
            ),
            "authorizationEnabled": "true",
            "authorizationProvider": f"{providers}.authorization.provider"
            ".DefaultAuthorizationProvider",
            "authorizationMetadataProvider": f"{providers}.authorization.provider"
            ".LocalAuthorizationMetadataProvider",
        },
    )
    asyncio.run(_make_users(cluster))
    return cluster


async def _make_users(cluster: ApacheCluster) -> None:
    async with Reader(cluster.namesrv, credentials=ADMIN) as reader:
        broker = await reader.at(cluster.brokers[0].address)

        async def ask(code: int, fields: dict[str, str], body: dict[str, Any]) -> None:
            command = RemotingCommand(code, ext_fields=fields, body=json.dumps(body).encode())
            answer = await broker.invoke(command, timeout=TIMEOUT)
            assert answer.code == ResponseCode.SUCCESS, answer

        for user, entries in RULES_2.items():
            name = {"username": user.access_key}
            body = {**name, "password": user.secret_key, "userType": "Normal"}
            await ask(_AUTH_CREATE_USER, name, body)
            if user is DISABLED:
                await ask(_AUTH_UPDATE_USER, name, {**body, "userStatus": "disable"})
            if entries:
                subject = {"subject": f"User:{user.access_key}"}
                policy = {
                    "policyType": "Custom",
                    "entries": [
                        {
                            "resource": resource,
                            "actions": actions,
                            "sourceIps": sources or None,
                            "decision": decision,
                        }
                        for resources, actions, sources, decision in entries
                        for resource in resources
                    ],
                }
                await ask(_AUTH_CREATE_ACL, subject, {**subject, "policies": [policy]})


def _apache_with_plugin(folder: Path) -> ApacheCluster:
    """4.x: a file in RocketMQ's home says who may do what."""
    require("4.9.4")
    java_command("4.9.4", folder, log_level="INFO")  # for what else stands in a home
    lines = ["accounts:"]
    for user, rights in RULES_1.items():
        lines += [f"- accessKey: {user.access_key}", f"  secretKey: {user.secret_key}"]
        lines += [f"  {name}: {json.dumps(value)}" for name, value in rights.items()]
    (folder / "conf" / "plain_acl.yml").write_text("\n".join(lines))
    return ApacheCluster(
        "4.9.4",
        brokers=1,
        settings={"aclEnable": "true"},
        jvm_properties={"rocketmq.home.dir": str(folder)},
    )


async def _make_topics(namesrv: str, brokers: Sequence[Server]) -> None:
    async with Reader(namesrv, credentials=ADMIN) as reader:
        for topic in (TOPIC, FORBIDDEN, f"{FORBIDDEN}-not"):
            await reader.create_topic(topic, brokers)
