"""Our NameServer and Apache's, asked the same things in the same order, give the same answers.

Where they differ, and so are not asked here, or not compared:
- Ours says that it is written in Python, and sets and maps come in another order: Java's have none.
- What Java refuses with the text of an exception, and what it takes though fields are missing.
- A broker that was refused is in Apache's list of brokers all the same, without an address.
- Apache's keeps the queues of a static topic when the topic is gone.
- Of the brokers that share a connection, all are gone when it ends; of Apache's only one is.
- A route of one zone is in the dialect the client asked for; Apache's is always in the old one.
"""

import asyncio
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from rocketpipe.codes import RequestCode as Code
from rocketpipe.nameserver.kv import KvConfig
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.bodies.topics import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketpipe.wire.fastjson import dumps, loads
from rocketpipe.wire.frame import RemotingCommand
from tests.apache.cluster import ApacheCluster
from tests.nameserver_process import NameServerProcess

TIMEOUT = 10.0


class Ask(NamedTuple):
    """A request, on one of several connections."""

    code: int
    ext_fields: dict[str, str] = {}  # noqa: RUF012  # never changed
    body: bytes = b""
    version: int = 513
    on: str = "client"


class Hangup(NamedTuple):
    """The end of a connection, and the address that goes with it."""

    on: str
    gone: str = "nobody"


def broker(
    name: str, port: int, broker_id: int = 0, *, cluster: str = "C", **more: str
) -> dict[str, str]:
    """The fields with which a broker registers."""
    return {
        "brokerName": name,
        "brokerAddr": f"127.0.0.1:{port}",
        "clusterName": cluster,
        "haServerAddr": f"127.0.0.1:{port + 1}",
        "brokerId": str(broker_id),
        **more,
    }


def registration(
    *topics: str,
    counter: int = 1,
    state_version: int = 0,
    perm: int = 6,
    sys_flag: int = 0,
    filter_servers: tuple[str, ...] = (),
    mappings: dict[str, object] | None = None,
) -> RegisterBrokerBody:
    return RegisterBrokerBody(
        filter_server_list=filter_servers,
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=counter, timestamp=7, state_version=state_version),
            topic_config_table={
                topic: TopicConfig.from_json(
                    {
                        "topicName": topic,
                        "readQueueNums": 4,
                        "writeQueueNums": 3,
                        "perm": perm,
                        "topicSysFlag": sys_flag,
                    }
                )
                for topic in topics
            },
            topic_queue_mapping_info_map=mappings or {},
        ),
    )


def register(
    fields: dict[str, str], *topics: str, on: str = "", version: int = 513, **more: object
) -> Ask:
    """A registration; each broker has a connection of its own, named after its address."""
    body = registration(*topics, **more)  # type: ignore[arg-type]
    if fields.get("compressed") == "true":
        encoded = body.encode_compressed(version=version)
    else:
        encoded = body.encode()
    return Ask(
        Code.REGISTER_BROKER, fields, encoded, version=version, on=on or fields["brokerAddr"]
    )


def kv(code: Code, namespace: str, key: str | None = None, value: str | None = None) -> Ask:
    fields = {"namespace": namespace, "key": key, "value": value}
    return Ask(code, {name: text for name, text in fields.items() if text is not None})


def route(topic: str, version: int = 513, **more: str) -> Ask:
    return Ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **more}, version=version)


def config(text: str) -> Ask:
    return Ask(Code.UPDATE_NAMESRV_CONFIG, {}, text.encode())


def static(topic: str) -> dict[str, object]:
    """The queues of a static topic. Apache's never forgets them: each topic is used once."""
    mapping = {"bname": "a", "currIdMap": {0: 0, 1: 1}, "dirty": False, "epoch": 3}
    return {topic: {**mapping, "scope": "__global__", "topic": topic, "totalQueues": 2}}


CLUSTER = Ask(Code.GET_BROKER_CLUSTER_INFO)
TOPICS = Ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
SYSTEM_TOPICS = Ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS)
UNIT_LISTS = (
    Ask(Code.GET_UNIT_TOPIC_LIST),
    Ask(Code.GET_HAS_UNIT_SUB_TOPIC_LIST),
    Ask(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST),
)


def members(name: str) -> Ask:
    return Ask(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": "C", "brokerName": name})


def version_of(fields: dict[str, str], counter: int) -> Ask:
    body = DataVersion(counter=counter, timestamp=7).encode()
    return Ask(Code.QUERY_DATA_VERSION, fields, body)


def topics_of(cluster: str) -> Ask:
    return Ask(Code.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})


def delete(topic: str, **more: str) -> Ask:
    return Ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": topic, **more})


def wipe(name: str) -> Ask:
    return Ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": name})


def add(name: str) -> Ask:
    return Ask(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": name})


def add_topic(topic: str, *names: str) -> Ask:
    queues = [
        {"brokerName": name, "perm": 6, "readQueueNums": 1, "writeQueueNums": 2} for name in names
    ]
    return Ask(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, dumps({"queueDatas": queues}))


A = broker("a", 1000)
B = broker("b", 2000)
SLAVE = broker("a", 1100, 1)
ACTING = {"enableActingMaster": "true"}
SCENARIOS: dict[str, list[Ask | Hangup]] = {
    "nothing is there": [
        CLUSTER,
        TOPICS,
        SYSTEM_TOPICS,
        topics_of("C"),
        route("T1"),
        members("a"),
        wipe("a"),
        add("a"),
        delete("T1"),
        delete("T1", clusterName="C"),
        *UNIT_LISTS,
        Ask(31999),
        Ask(Code.UNREGISTER_BROKER, A),
        Ask(Code.BROKER_HEARTBEAT, A),
        version_of(A, 1),
        Ask(Code.QUERY_DATA_VERSION, A),
    ],
    "kv": [
        kv(Code.GET_KV_CONFIG, "n", "k"),
        kv(Code.GET_KVLIST_BY_NAMESPACE, "n"),
        kv(Code.PUT_KV_CONFIG, "n", "k", "v"),
        kv(Code.PUT_KV_CONFIG, "n", "名字", "值 \t\n\"'"),
        kv(Code.PUT_KV_CONFIG, "n", "empty", ""),
        kv(Code.GET_KV_CONFIG, "n", "k"),
        kv(Code.GET_KV_CONFIG, "n", "empty"),
        kv(Code.GET_KV_CONFIG, "n", "名字"),
        kv(Code.GET_KVLIST_BY_NAMESPACE, "n"),
        kv(Code.PUT_KV_CONFIG, "n", "k", "other"),
        kv(Code.GET_KV_CONFIG, "n", "k"),
        kv(Code.DELETE_KV_CONFIG, "n", "k"),
        kv(Code.GET_KV_CONFIG, "n", "k"),
        kv(Code.DELETE_KV_CONFIG, "n", "k"),
        kv(Code.DELETE_KV_CONFIG, "n", "empty"),
        kv(Code.DELETE_KV_CONFIG, "n", "名字"),
        kv(Code.GET_KVLIST_BY_NAMESPACE, "n"),
        kv(Code.DELETE_KV_CONFIG, "other", "k"),
        kv(Code.GET_KVLIST_BY_NAMESPACE, "other"),
    ],
    "registration": [
        register(A, "T1", "T2"),
        register(B, "T2", "T3"),
        CLUSTER,
        TOPICS,
        SYSTEM_TOPICS,
        topics_of("C"),
        topics_of("D"),
        route("T1"),
        route("T2"),
        route("T2", version=401),
        route("T2", version=400),
        route("T2", version=400, acceptStandardJsonOnly="true"),
        route("T2", version=400, acceptStandardJsonOnly="false"),
        members("a"),
        version_of(A, 1),
        version_of(A, 2),
        Ask(Code.QUERY_DATA_VERSION, A),
        Ask(Code.BROKER_HEARTBEAT, A),
        Ask(Code.UNREGISTER_BROKER, A),
        CLUSTER,
        TOPICS,
        route("T1"),
        route("T2"),
        version_of(A, 1),
        Ask(Code.UNREGISTER_BROKER, B),
        CLUSTER,
        TOPICS,
    ],
    "a connection ends": [
        register(A, "T1", "T2"),
        register(B, "T2", "T3"),
        register(SLAVE, "T1", "T2"),
        Hangup("127.0.0.1:1100", gone="127.0.0.1:1100"),
        CLUSTER,
        Hangup("127.0.0.1:1000", gone="127.0.0.1:1000"),
        CLUSTER,
        TOPICS,
        register(A, "T1", "T2", on="again"),
        register(A, "T1", "T2", on="newer"),
        Hangup("again"),
        CLUSTER,
    ],
    "one topic at a time": [
        register(A, "T1", "T2"),
        register(A, "T3", counter=2),
        TOPICS,
        version_of(A, 2),
        route("T3"),
        register(A, "T1", counter=3, perm=4),
        route("T1"),
        route("T2"),
    ],
    "versions of a broker's topics": [
        register(A, "T1", "T2"),
        register(A, "T1", "T2", perm=4),  # the same version: nobody looks
        route("T1"),
        register(A, "T1", "T2", "T3", perm=4),  # but what is missing is taken
        route("T3"),
        register(A, "T1", "T2", perm=4, counter=2),
        route("T1"),
        TOPICS,
        register(A, "T4", "T5", counter=2),  # others stay
        TOPICS,
        delete("T1"),
        register(A, "T1", "T2", perm=6, counter=2),
        route("T1"),
        route("T2"),
    ],
    "a body is checked and may be compressed": [
        Ask(Code.REGISTER_BROKER, {**A, "bodyCrc32": "7"}, registration("T1", "T2").encode()),
        CLUSTER,
        register({**A, "bodyCrc32": "0"}, "T1", "T2"),
        Ask(
            Code.REGISTER_BROKER,
            {**A, "bodyCrc32": str(zlib.crc32(registration("T1").encode()) & 0x7FFFFFFF)},
            registration("T1").encode(),
            on="127.0.0.1:1000",
        ),
        register({**B, "compressed": "true"}, "T4", "T5"),
        register(broker("c", 3000, compressed="true"), "T6", "T7", version=401),
        register(broker("d", 4000, compressed="true"), "S1", "T9", mappings=static("S1")),
        route("T4"),
        route("T6"),
        route("S1"),
        Ask(
            Code.REGISTER_BROKER,
            broker("e", 5000),
            registration("U1", "U2").topic_config_serialize_wrapper.encode(),
            version=36,
            on="e",
        ),
        route("U1"),
        register(broker("g", 7000), "V1", "V2", version=37),
        route("V1"),
        Ask(Code.REGISTER_BROKER, broker("f", 6000), on="f"),
        members("f"),
    ],
    "permissions": [
        register(A, "T1", "T2"),
        register(B, "T2", "T3", perm=7),
        wipe("a"),
        wipe("b"),
        route("T1"),
        route("T2"),
        register(A, "T1", "T2"),  # as it does every half minute: still wiped
        route("T1"),
        register(A, "T3", counter=2),  # a new topic is not
        register(A, "T1", "T2", "T3", counter=2),
        route("T1"),
        route("T3"),
        add("a"),
        add("b"),
        route("T2"),
        wipe("a"),
        register(A, "T1", "T2", counter=3),  # a change of any topic undoes it
        route("T1"),
    ],
    "masters and slaves": [
        register(SLAVE, "T1", "T2"),  # 4.9 does not say enableActingMaster
        TOPICS,
        CLUSTER,
        register(A, "T1", "T2"),
        register(SLAVE, "T1", "T2"),
        register(SLAVE, "T9"),
        TOPICS,
        CLUSTER,
        route("T1"),
        members("a"),
        Ask(Code.UNREGISTER_BROKER, A),
        members("a"),
        route("T1"),
        register(SLAVE, "T1", "T2"),
        Ask(Code.UNREGISTER_BROKER, SLAVE),
        TOPICS,
        register({**SLAVE, "enableActingMaster": "false"}, "P1", "P2"),
        route("P1"),
        register({**A, "enableActingMaster": "false"}, "P1", "P3"),
        route("P1"),
        # The slave takes the master's id, from its own address.
        register({**SLAVE, "brokerId": "0"}, "P1", "P2", counter=5),
        members("a"),
        route("P1"),
    ],
    "acting masters": [
        config("supportActingMaster=true"),
        register({**A, **ACTING}, "T1", "T2"),
        register({**SLAVE, **ACTING}, "T1", "T2"),
        register({**broker("a", 1200, 2), **ACTING}, "T1", "T2"),
        route("T1"),
        Hangup("127.0.0.1:1000", gone="127.0.0.1:1000"),
        route("T1"),
        members("a"),
        CLUSTER,
        route("rmq_sys_SYNC_BROKER_MEMBER_a"),
        register({**SLAVE, **ACTING}, "T1", "rmq_sys_SYNC_BROKER_MEMBER_a", counter=9),
        route("T1"),
        route("rmq_sys_SYNC_BROKER_MEMBER_a"),
        register({**A, **ACTING}, "T1", "T2", on="again", counter=10),
        route("T1"),
        Ask(Code.UNREGISTER_BROKER, A),
        config("supportActingMaster=false"),
        route("T1"),
    ],
    "two claim one id": [
        register(A, "T1", "T2", state_version=5),
        register(broker("a", 1500), "T1", "T2", state_version=4),
        members("a"),
        register(broker("a", 1500), "T1", "T3", state_version=5),
        members("a"),
        TOPICS,
        register(A, "T1", "T2", state_version=6),
        members("a"),
        register(broker("a", 1600, 1), "T1", "T2"),
        register(broker("a", 1600, 0), "T1", "T2"),
        members("a"),
    ],
    "topics alone": [
        add_topic("T1", "a"),
        TOPICS,
        register(A, "T1", "T2"),
        register(B, "T1", "T2"),
        add_topic("X1", "a"),
        add_topic("X1", "b"),
        add_topic("X2", "a", "nobody"),
        add_topic("X3"),
        Ask(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "X4"}, b"{}"),
        Ask(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "X4"}),
        TOPICS,
        route("X1"),
        delete("T1", clusterName="D"),
        TOPICS,
        delete("T1", clusterName="C"),
        TOPICS,
        delete("T2", clusterName=""),
        TOPICS,
        route("T2"),
    ],
    "units": [
        register(A, "none1", "none2"),
        register(broker("u", 2000), "unit1", "unit2", sys_flag=1),
        register(broker("v", 3000), "sub1", "sub2", sys_flag=2),
        register(broker("w", 4000), "both1", "both2", sys_flag=3),
        *UNIT_LISTS,
        config("enableTopicList=false"),
        *UNIT_LISTS,
        topics_of("C"),
        TOPICS,
        config("enableTopicList=true\nenableAllTopicList=nonsense"),
        *UNIT_LISTS,
        topics_of("C"),
        TOPICS,
        config("enableAllTopicList=TRUE"),
        TOPICS,
    ],
    "ordered topics": [
        register(A, "T1", "T2"),
        kv(Code.PUT_KV_CONFIG, "ORDER_TOPIC_CONFIG", "T1", "a:4;b:4"),
        register(A, "T1", "T2"),
        route("T1"),
        config("orderMessageEnable=true"),
        route("T1"),
        route("T1", version=300),
        route("T2"),
        config("orderMessageEnable=false\nreturnOrderTopicConfigToBroker=false"),
        register(A, "T1", "T2"),
        config("returnOrderTopicConfigToBroker=true"),
        kv(Code.DELETE_KV_CONFIG, "ORDER_TOPIC_CONFIG", "T1"),
        register(A, "T1", "T2"),
    ],
    "settings": [
        config("kvConfigPath=/nowhere"),
        config("rocketmqHome=/nowhere"),
        config("configBlackList="),
        config("noSuchSetting=1"),
        config(""),
        config("# nothing\n"),
        config("deleteTopicWithBrokerRegistration=true"),
        register(A, "T1", "T2"),
        register(B, "T1", "T2"),
        register(A, "T2", "T3"),
        TOPICS,
        register(A, "T3", "S2", counter=2, mappings=static("S2")),
        route("S2"),
        TOPICS,
        config("deleteTopicWithBrokerRegistration=false"),
        config("needWaitForService=true\nwaitSecondsForService=1000000"),
        route("T1"),
        config("needWaitForService=false\nwaitSecondsForService=45"),
        route("T1"),
    ],
    "filter servers": [
        register(A, "T1", "T2", filter_servers=("127.0.0.1:1",)),
        register(B, "T1", "T2"),
        route("T1"),
        register(A, "T1", "T2"),
        route("T1"),
    ],
    "static topics": [
        register(A, "S3", "T2", mappings=static("S3")),
        route("S3"),
        route("S3", version=300),
        route("T2"),
    ],
    "zones": [
        register({**A, "__ZONE_NAME": "north"}, "T1", "T2", filter_servers=("127.0.0.1:1",)),
        register({**B, "__ZONE_NAME": "south"}, "T1", "T2"),
        register(broker("c", 3000), "T1", "T2"),
        register(broker("d", 4000, 1, enableActingMaster="false"), "T1", "T2"),
        CLUSTER,
        route("T1"),
        route("T1", __ZONE_NAME="north"),
        route("T1", __ZONE_MODE="true"),
        route("T1", __ZONE_MODE="TRUE", __ZONE_NAME="NORTH", version=300),
        route("T1", __ZONE_MODE="true", __ZONE_NAME="south", version=300),
        route("T1", __ZONE_MODE="true", __ZONE_NAME="west", version=300),
        route("T1", __ZONE_MODE="true", __ZONE_NAME=" "),
    ],
    "clusters": [
        register(A, "T1", "T2"),
        register(broker("b", 2000, cluster="D"), "T2", "T3"),
        CLUSTER,
        SYSTEM_TOPICS,
        topics_of("C"),
        topics_of("D"),
        delete("T2", clusterName="D"),
        route("T2"),
        Hangup("127.0.0.1:2000", gone="127.0.0.1:2000"),
        CLUSTER,
        topics_of("D"),
    ],
}


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with NameServerProcess() as nameserver:
        yield nameserver.address


@pytest.fixture(scope="module")
def apaches(apache_version: str) -> Iterator[str]:
    with ApacheCluster(apache_version, brokers=0) as cluster:
        yield cluster.namesrv


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
@pytest.mark.parametrize("name", SCENARIOS)
def test_both_answer_alike(name: str, ours: str, apaches: str, apache_version: str) -> None:
    async def main() -> None:
        expected = await play(Address.parse(apaches), SCENARIOS[name])
        answers = await play(Address.parse(ours), SCENARIOS[name])
        asked = [step for step in SCENARIOS[name] if isinstance(step, Ask)]
        for step, answer, wanted in zip(asked, answers, expected, strict=True):
            assert answer == wanted, step

    asyncio.run(main())


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_both_read_each_others_kv_file(apache_version: str) -> None:
    with ApacheCluster(apache_version, brokers=0) as cluster:
        cluster.nameserver.kill()
        path = cluster.nameserver.folder / "kv.json"
        KvConfig(path).put("n", "ours", "值", bytes_max=1000)
        cluster.nameserver.start()
        script: list[Ask | Hangup] = [
            kv(Code.PUT_KV_CONFIG, "n", "apaches", "v"),
            kv(Code.GET_KV_CONFIG, "n", "ours"),
        ]
        *_, got = asyncio.run(play(Address.parse(cluster.namesrv), script))
        assert got == (0, None, {"value": "值"}, None)
        assert KvConfig(path).namespace("n") == {"ours": "值", "apaches": "v"}


async def play(address: Address, script: list[Ask | Hangup]) -> list[object]:
    """The answers, without what may differ."""
    connections: dict[str, Connection] = {}
    answers: list[object] = []

    async def ask(step: Ask) -> RemotingCommand:
        if step.on not in connections:
            connections[step.on] = await connect(AsyncioNetwork(), address, timeout=TIMEOUT)
        command = RemotingCommand(step.code, dict(step.ext_fields), step.body)
        command.version = step.version
        return await connections[step.on].invoke(command, timeout=TIMEOUT)

    async def until_gone(broker_addr: str) -> None:
        # Apache's takes its time to forget a broker, be it told or cut off.
        async with asyncio.timeout(TIMEOUT):
            while broker_addr.encode() in (await ask(CLUSTER)).body:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    try:
        for step in script:
            if isinstance(step, Hangup):
                await connections.pop(step.on).close()
                await until_gone(step.gone)
                continue
            answer = await ask(step)
            body = loads(answer.body) if answer.body else None
            answers.append((answer.code, answer.remark, answer.ext_fields, comparable(body)))
            if step.code == Code.UNREGISTER_BROKER:
                await until_gone(f'"{step.ext_fields["brokerAddr"]}"')
        for on in [on for on in connections if on != "client"]:
            await connections.pop(on).close()
        await until_gone("brokerName")  # any at all: the next scenario begins with none
    finally:
        for connection in connections.values():
            await connection.close()
    return answers


def comparable(body: object) -> object:
    """Without the order of lists; whether keys are numbers stays to be seen."""
    if isinstance(body, dict):
        return {key: comparable(value) for key, value in body.items()}
    if isinstance(body, list):
        return sorted(map(comparable, body), key=repr)
    return body
