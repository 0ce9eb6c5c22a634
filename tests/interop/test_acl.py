"""Brokers that check who asks: the right key sends, and every other is told why not."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rocketpipe import (
    AsyncAdmin,
    AsyncProducer,
    ClientSettings,
    Credentials,
    Message,
    SendResult,
)
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokersFailed, NotFound, SendFailed
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.admin import GetProducerConnectionList
from tests.apache.cluster import ApacheCluster
from tests.apache.launch import java_command
from tests.interop.clusters import TIMEOUT, Reader, until

ADMIN = Credentials("admin-user", "admin-secret")
WRITER = Credentials("writer-user", "writer-secret")
TOPIC, FORBIDDEN = "acl-open", "acl-closed"

_AUTH_CREATE_USER = 3001
_AUTH_CREATE_ACL = 3006


@pytest.fixture(scope="module")
def acl_cluster(apache_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The NameServer of a broker that lets the writer send to one topic, and nobody else."""
    start = _start_with_plugin if apache_version == "4.9.4" else _start_with_auth
    with start(apache_version, tmp_path_factory.mktemp("acl")) as cluster:
        yield cluster.namesrv


def _start_with_auth(version: str, folder: Path) -> ApacheCluster:
    """5.x: users and permissions are made by requests of the first user."""
    providers = "org.apache.rocketmq.auth"
    cluster = ApacheCluster(
        version,
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
    subject = f"User:{WRITER.access_key}"
    entry = {"resource": f"Topic:{TOPIC}", "actions": ["Pub"], "decision": "Allow"}
    user = {"username": WRITER.access_key, "password": WRITER.secret_key, "userType": "Normal"}
    policies = [{"policyType": "Custom", "entries": [entry]}]

    async def main() -> None:
        async with Reader(cluster.namesrv, credentials=ADMIN) as reader:
            for topic in (TOPIC, FORBIDDEN):
                await reader.create_topic(topic, cluster.brokers)
            broker = await reader.at(cluster.brokers[0].address)
            for code, fields, body in (
                (_AUTH_CREATE_USER, {"username": WRITER.access_key}, user),
                (
                    _AUTH_CREATE_ACL,
                    {"subject": subject},
                    {"subject": subject, "policies": policies},
                ),
            ):
                command = RemotingCommand(code, ext_fields=fields, body=json.dumps(body).encode())
                answer = await broker.invoke(command, timeout=TIMEOUT)
                assert answer.code == ResponseCode.SUCCESS, answer

    asyncio.run(main())
    return cluster


def _start_with_plugin(version: str, folder: Path) -> ApacheCluster:
    """4.x: a file in RocketMQ's home says who may do what."""
    java_command(version, folder, log_level="INFO")  # for what else stands in a home
    (folder / "conf" / "plain_acl.yml").write_text(
        f"""accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  admin: true
- accessKey: {WRITER.access_key}
  secretKey: {WRITER.secret_key}
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {TOPIC}=PUB
"""
    )
    cluster = ApacheCluster(
        version,
        brokers=1,
        settings={"aclEnable": "true"},
        jvm_properties={"rocketmq.home.dir": str(folder)},
    )

    async def main() -> None:
        async with Reader(cluster.namesrv, credentials=ADMIN) as reader:
            for topic in (TOPIC, FORBIDDEN):
                await reader.create_topic(topic, cluster.brokers)

    asyncio.run(main())
    return cluster


def send(namesrv: str, credentials: Credentials | None, topic: str = TOPIC) -> SendResult:
    async def main() -> SendResult:
        async with AsyncProducer(
            "acl-producer", namesrv=namesrv, credentials=credentials, send_timeout=TIMEOUT
        ) as producer:
            return await producer.send(Message(topic, b"x" * 5000, properties={"名": "值"}))

    return asyncio.run(main())


@pytest.mark.parametrize("credentials", [WRITER, ADMIN], ids=["writer", "admin"])
def test_the_right_key_sends(acl_cluster: str, credentials: Credentials) -> None:
    result = send(acl_cluster, credentials)
    assert result.queue.topic == TOPIC
    assert len(result.attempts) == 1


def test_heartbeats_and_farewells_are_signed_too(acl_cluster: str) -> None:
    async def main() -> None:
        async with Reader(acl_cluster, credentials=ADMIN) as reader:

            async def is_known(group: str) -> bool:
                broker = await reader.broker((await reader.queues(TOPIC))[0])
                request = GetProducerConnectionList(producer_group=group).to_command()
                answer = await broker.invoke(request, timeout=TIMEOUT)
                return answer.code == ResponseCode.SUCCESS

            async def signed_is_known() -> bool | None:
                return await is_known("acl-signed") or None

            async with (
                AsyncProducer("acl-signed", namesrv=acl_cluster, credentials=ADMIN) as signed,
                AsyncProducer("acl-unsigned", namesrv=acl_cluster) as unsigned,
            ):
                with pytest.raises(SendFailed):
                    await unsigned.send(Message(TOPIC, b"x"))
                await signed.send(Message(TOPIC, b"x"))
                await until(signed_is_known)
                assert not await is_known("acl-unsigned")  # its heartbeats, too, were refused
            assert not await is_known("acl-signed")

    asyncio.run(main())


# By release: a broker's own words, in the error.
REFUSALS: Mapping[str, tuple[Credentials | None, str, Mapping[str, str]]] = {
    "a wrong key": (
        Credentials(WRITER.access_key, "not-the-secret"),
        TOPIC,
        {"5.5.0": "check signature failed", "4.9.4": "Check signature failed"},
    ),
    "an unknown user": (
        Credentials("nobody-here", "secret"),
        TOPIC,
        {"5.5.0": "User:nobody-here is not found", "4.9.4": "No acl config for nobody-here"},
    ),
    "no key": (None, TOPIC, {"5.5.0": "username cannot be null", "4.9.4": "No accessKey"}),
    "another's topic": (
        WRITER,
        FORBIDDEN,
        {"5.5.0": "writer-user has no permission", "4.9.4": "No default permission"},
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_fails_the_send_with_the_brokers_own_words(
    acl_cluster: str, apache_version: str, refusal: str
) -> None:
    """Each of the attempts is refused: as in Java, another broker might know the user."""
    credentials, topic, words = REFUSALS[refusal]
    with pytest.raises(SendFailed, match=words[apache_version]) as caught:
        send(acl_cluster, credentials, topic)
    expected = {"5.5.0": ResponseCode.NO_PERMISSION, "4.9.4": ResponseCode.SYSTEM_ERROR}
    assert caught.value.code == expected[apache_version]
    assert len(caught.value.attempts) == 3
    if credentials is not None:
        assert credentials.secret_key not in str(caught.value)


def test_an_administrator_may_do_all_and_others_are_told_why_not(acl_cluster: str) -> None:
    async def main() -> None:
        settings = ClientSettings(namesrv=acl_cluster, request_timeout=TIMEOUT)
        topic = "acl-administered"
        async with AsyncAdmin(settings, credentials=ADMIN) as admin:
            await admin.create_topic(topic, queues=1)
            async with AsyncProducer(
                "acl-admins", namesrv=acl_cluster, credentials=ADMIN, send_timeout=TIMEOUT
            ) as producer:
                result = await producer.send(Message(topic, b"x"))

            async def found() -> bytes | None:
                try:
                    return (await admin.message(result.message_id, topic=topic)).body
                except NotFound:
                    return None

            assert await until(found) == b"x"
            assert (await admin.topic_stats(topic)).message_count == 1
        async with AsyncAdmin(settings, credentials=WRITER) as admin:
            with pytest.raises(BrokersFailed, match=f"topic '{topic}' failed on 1 of 1"):
                await admin.delete_topic(topic)

    asyncio.run(main())
