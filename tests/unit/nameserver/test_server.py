"""The NameServer on simulated time and a simulated network."""

import asyncio
import json
import re
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, ClientError
from rocketpipe.nameserver.server import NameServer
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.testing.simulated_loop import SimulatedClock, run
from rocketpipe.testing.simulated_network import SimulatedNetwork
from rocketpipe.wire.bodies.route import TopicRouteData
from rocketpipe.wire.bodies.topics import DataVersion, RegisterBrokerBody
from rocketpipe.wire.config_text import parse_config
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Reply, Request
from rocketpipe.wire.requests.nameserver import (
    BrokerHeartbeat,
    DeleteKvConfig,
    GetAllTopicListFromNameserver,
    GetBrokerClusterInfo,
    GetKvConfig,
    GetKvlistByNamespace,
    GetNamesrvConfig,
    GetRouteinfoByTopic,
    GetTopicsByCluster,
    PutKvConfig,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
    UpdateNamesrvConfig,
)
from tests.unit.nameserver.registrations import broker, topics

R = TypeVar("R", bound=Reply)

TIMEOUT = 10.0
TWO = topics("T1", "T2")
PATIENT = RemotingSettings(idle_timeout=10_000)


class Place:
    """A NameServer, and those who ask it; each host has one connection."""

    def __init__(self, settings: NameServerSettings | None = None) -> None:
        self.network = SimulatedNetwork(1)
        self.server = NameServer(
            self.network.host("namesrv"),
            settings,
            clock=SimulatedClock(asyncio.get_running_loop()),
            remoting=PATIENT,
        )
        self.address = Address("namesrv", 0)
        self._connections: dict[str, Connection] = {}

    async def connection(self, host: str) -> Connection:
        connection = self._connections.get(host)
        if connection is None or connection.lost:
            connection = await connect(
                self.network.host(host), self.address, timeout=TIMEOUT, settings=PATIENT
            )
            self._connections[host] = connection
        return connection

    async def ask(self, request: Request[R], body: bytes = b"", host: str = "client") -> R:
        return await (await self.connection(host)).request(request, body, timeout=TIMEOUT)

    async def register(
        self, request: RegisterBroker, body: RegisterBrokerBody = TWO, host: str = "broker"
    ) -> None:
        await self.ask(request, body.encode(), host)

    async def has_route(self, topic: str = "T1") -> bool:
        try:
            await self.ask(GetRouteinfoByTopic(topic=topic))
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return False
        return True

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()
        await self.server.close()


def scene(
    play: Callable[[Place], Awaitable[None]], settings: NameServerSettings | None = None
) -> None:
    async def main() -> None:
        await asyncio.sleep(1000)  # whatever the clock shows when it starts
        place = Place(settings)
        place.address = await place.server.start(place.address)
        await play(place)
        await place.close()

    run(main())


def test_a_broker_that_falls_silent_is_gone_after_two_minutes() -> None:
    async def play(place: Place) -> None:
        await place.register(broker())
        connection = await place.connection("broker")
        await asyncio.sleep(119)
        assert await place.has_route()
        await asyncio.sleep(7)  # the next scan is at most five seconds away
        assert not await place.has_route()
        assert connection.lost is not None

    scene(play)


@pytest.mark.parametrize("sign", ["heartbeat", "question", "registration"])
def test_a_broker_that_gives_a_sign_stays(sign: str) -> None:
    async def play(place: Place) -> None:
        await place.register(broker())
        for _ in range(20):
            await asyncio.sleep(100)
            if sign == "heartbeat":
                await place.ask(
                    BrokerHeartbeat(cluster_name="C", broker_name="broker-a", broker_addr="a:1")
                )
            elif sign == "question":
                question = QueryDataVersion(
                    cluster_name="C", broker_name="broker-a", broker_addr="a:1", broker_id=0
                )
                reply = await place.ask(question, DataVersion(counter=1).encode())
                assert not reply.changed
            else:
                await place.register(broker())
        assert await place.has_route()

    scene(play)


def test_a_broker_may_ask_for_less_patience_and_the_scan_for_less_time() -> None:
    async def play(place: Place) -> None:
        await place.register(broker(heartbeat_timeout_millis=3000))
        await asyncio.sleep(2.9)
        assert await place.has_route()
        await asyncio.sleep(1.2)
        assert not await place.has_route()

    scene(play, NameServerSettings(scan_not_active_broker_interval=1.0))


@pytest.mark.parametrize("end", ["close", "crash", "goodbye"])
def test_a_broker_that_ends_is_gone_at_once(end: str) -> None:
    async def play(place: Place) -> None:
        await place.register(broker())
        await place.register(broker("broker-b", "b:1"), topics("T1", "T3"), host="other")
        if end == "close":
            await (await place.connection("broker")).close()
        elif end == "crash":
            place.network.crash("broker")
        else:
            await place.ask(
                UnregisterBroker(
                    cluster_name="C", broker_name="broker-a", broker_addr="a:1", broker_id=0
                )
            )
        await asyncio.sleep(1)
        assert not await place.has_route("T2")
        route: TopicRouteData = await place.ask(GetRouteinfoByTopic(topic="T1"))
        assert [each.broker_name for each in route.broker_datas] == ["broker-b"]

    scene(play)


def test_a_broker_behind_a_cut_network_expires_and_comes_back() -> None:
    async def play(place: Place) -> None:
        await place.register(broker())
        place.network.cut("broker", "namesrv")
        await asyncio.sleep(126)
        assert not await place.has_route()
        place.network.heal("broker", "namesrv")
        await asyncio.sleep(1)
        await place.register(broker())
        assert await place.has_route()

    scene(play)


def test_routes_wait_for_brokers_when_told_to() -> None:
    async def play(place: Place) -> None:
        await place.register(broker())
        with pytest.raises(BrokerError, match="name server not ready"):
            await place.has_route()
        await asyncio.sleep(9.9)
        assert await place.has_route()

    scene(play, NameServerSettings(need_wait_for_service=True, wait_seconds_for_service=9.9))


def test_texts_outlive_the_server_in_their_file(tmp_path: Path) -> None:
    settings = NameServerSettings(kv_config_path=tmp_path / "kvConfig.json")

    async def put(place: Place) -> None:
        await place.ask(PutKvConfig(namespace="n", key="k", value="v"))
        await place.ask(PutKvConfig(namespace="n", key="k2", value="v2"))
        await place.ask(DeleteKvConfig(namespace="n", key="k2"))

    async def get(place: Place) -> None:
        assert (await place.ask(GetKvConfig(namespace="n", key="k"))).value == "v"
        assert (await place.ask(GetKvlistByNamespace(namespace="n"))).table == {"k": "v"}

    scene(put, settings)
    scene(get, settings)


def test_texts_beyond_the_limit_are_refused() -> None:
    async def play(place: Place) -> None:
        with pytest.raises(BrokerError, match="over 10 bytes"):
            await place.ask(PutKvConfig(namespace="n", key="k", value="x" * 9))

    scene(play, NameServerSettings(kv_config_bytes_max=10))


def test_settings_change_while_it_runs() -> None:
    async def play(place: Place) -> None:
        lists = (GetAllTopicListFromNameserver(), GetTopicsByCluster(cluster="C"))
        for request in lists:
            with pytest.raises(BrokerError, match="disable"):
                await place.ask(request)
        config = b"enableAllTopicList=true\nenableTopicList=true\n"
        await place.ask(UpdateNamesrvConfig(), config)
        for request in lists:
            await place.ask(request)
        for bad, remark in (
            (b"topicsMax=none", "topicsMax is 'none'"),
            (b"scanNotActiveBrokerInterval=0", "scan_not_active_broker_interval is 0.0"),
            (b"\xff=1", "string2Properties error"),
            (b"topicsMax=7\nkvConfigPath=x", "black list"),
        ):
            with pytest.raises(BrokerError, match=remark):
                await place.ask(UpdateNamesrvConfig(), bad)
        shown = parse_config(await place.ask(GetNamesrvConfig()))
        assert (
            shown.items()
            >= {
                "enableTopicList": "true",
                "topicsMax": "100000",
                "bindAddress": "namesrv",
                "listenPort": str(place.address.port),
            }.items()
        )

    scene(play, NameServerSettings(enable_all_topic_list=False, enable_topic_list=False))


def test_a_black_list_may_have_more_names() -> None:
    async def play(place: Place) -> None:
        with pytest.raises(BrokerError, match="black list"):
            await place.ask(UpdateNamesrvConfig(), b"topicsMax=7")

    scene(play, NameServerSettings(config_black_list="topicsMax"))


def test_it_starts_once() -> None:
    async def play(place: Place) -> None:
        with pytest.raises(ClientError, match="started before"):
            await place.server.start(Address("namesrv", 0))

    scene(play)


def test_closed_it_listens_no_more_and_a_second_close_does_nothing() -> None:
    async def play(place: Place) -> None:
        connection = await place.connection("client")
        await place.server.close()
        await place.server.close()
        await asyncio.sleep(1)
        assert connection.lost is not None

    scene(play)


# Garbage: whatever is asked is answered, and the next is served.

CODES = sorted(
    code for code in RequestCode if code in {*range(100, 107), *range(200, 340), 901, 904}
)
NAMES = [
    *("namespace", "key", "value", "topic", "cluster", "clusterName", "brokerName", "brokerAddr"),
    *("brokerId", "haServerAddr", "heartbeatTimeoutMillis", "enableActingMaster", "compressed"),
    *("bodyCrc32", "acceptStandardJsonOnly", "__ZONE_NAME", "__ZONE_MODE", "nonsense"),
]
TEXTS = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "true", "a", "C", "T1", "9223372036854775807", "NaN"]),
    st.text(max_size=20),
)
NUMBERS = st.one_of(st.integers(-2, 8), st.integers(), st.floats())
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
TOPIC = st.fixed_dictionaries(
    {"topicName": TEXTS},
    optional={"perm": NUMBERS, "readQueueNums": NUMBERS, "topicSysFlag": NUMBERS, "order": JSON},
)
REGISTRATION = st.fixed_dictionaries(
    {
        "topicConfigSerializeWrapper": st.fixed_dictionaries(
            {},
            optional={
                "topicConfigTable": st.dictionaries(TEXTS, TOPIC, max_size=4) | JSON,
                "dataVersion": st.dictionaries(
                    st.sampled_from(["counter", "timestamp", "stateVersion"]), NUMBERS
                ),
                "topicQueueMappingInfoMap": st.dictionaries(TEXTS, JSON, max_size=2),
            },
        )
    },
    optional={"filterServerList": st.lists(TEXTS, max_size=3) | JSON},
)
"""Bodies that are nearly right get further than bytes that are all wrong."""


def json_bytes(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "replace")


BODIES = st.one_of(
    st.just(b""),
    st.binary(max_size=64),
    JSON.map(json_bytes),
    REGISTRATION.map(json_bytes),
    st.builds(lambda body: zlib.compress(json_bytes(body)), REGISTRATION),
    st.sampled_from([b"topicsMax=1", b"enableTopicList=false\nscanNotActiveBrokerInterval=1"]),
)
FIELDS = st.dictionaries(st.sampled_from(NAMES), TEXTS)
COMMANDS = st.builds(
    RemotingCommand,
    st.sampled_from(CODES),
    FIELDS | FIELDS.map(lambda fields: {**broker().to_ext_fields(), **fields}),
    BODIES,
    version=st.sampled_from([0, 36, 37, 400, 401, 513]),
)


@pytest.mark.slow
@hypothesis_settings(max_examples=150)
@given(st.lists(COMMANDS, min_size=1, max_size=12))
def test_garbage_is_answered_and_harms_nobody(commands: list[RemotingCommand]) -> None:
    async def play(place: Place) -> None:
        connection = await place.connection("client")
        for command in commands:
            answer = await connection.invoke(command, timeout=TIMEOUT)
            # A mistake of our own would be told by the name of Python's error.
            assert not re.match(r"[A-Z]\w*Error\b", answer.remark or ""), answer.remark
        await connection.close()
        await place.register(broker("healthy", "h:1"), topics())
        info = await place.ask(GetBrokerClusterInfo())
        assert info.broker_addr_table["healthy"].broker_addrs == {0: "h:1"}

    scene(play)
