"""What the tests of behaviour send, with which producer, and when it counts as having arrived."""

from typing import Any

from rocketpipe import AsyncProducer, Message, StoredMessage
from tests.interop.clusters import TIMEOUT, Cluster

EVERY_BYTE = bytes(range(256))
FULL = Message(
    "to-be-replaced",
    b"\0" + EVERY_BYTE + b"\0",
    tags="étiquette-标签",
    keys=["k-1", "ключ", "键🔑"],
    flag=-(1 << 31),
    properties={"plain": "value", "名字": "值 é", "spaces": " in and around ", "emoji": "🚀"},
    sharding_key="o-1 é",
)


def producer_at(cluster: Cluster, group: str = "interop", **settings: Any) -> AsyncProducer:
    """A patient producer: how busy this machine is, is not what is tested with it."""
    settings = {"send_timeout": TIMEOUT, "request_timeout": TIMEOUT, **settings}
    return AsyncProducer(group, namesrv=cluster.namesrv, **settings)


def assert_same(stored: StoredMessage, sent: Message, cluster: Cluster) -> None:
    """What came back is what was sent, and nothing but a producer's and a broker's own is added."""
    assert (stored.topic, stored.body, stored.flag) == (sent.topic, sent.body, sent.flag)
    assert (stored.tags, stored.keys) == (sent.tags, sent.keys)
    assert stored.properties.get("__SHARDINGKEY") == sent.sharding_key
    if cluster.version != "4.9.4":  # which drops it: it was for the broker
        assert stored.properties["WAIT"] == str(sent.wait_store_ok).lower()
    added = {"TAGS", "KEYS", "__SHARDINGKEY", "WAIT", "UNIQ_KEY"}
    added |= {"MSG_REGION", "TRACE_ON", "CLUSTER"}
    users = {name: value for name, value in stored.properties.items() if name not in added}
    assert users == sent.properties
