"""The cluster that a demo runs on: one of its own, or one that is there already."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketpipe.demo.scenario import Event, Trouble
from rocketpipe.demo.troubles import FaultyServers, Sufferer
from rocketpipe.sync.admin import Admin
from rocketpipe.testing.embedded_cluster import EmbeddedCluster

QUEUES = 2  # of each topic on each broker: Spark makes a task of each, in every micro-batch

# What is acknowledged survives the death of its broker: so it has to be on disk before.
EMBEDDED_SETTINGS = {"flushDiskType": "SYNC_FLUSH"}
EMBEDDED_BROKERS = 3


class Untouchable:
    """A cluster that nothing is done to, since it is somebody else's."""

    able: Collection[Trouble] = ()

    def begin(self, event: Event) -> None:
        raise AssertionError("nothing is done to this cluster")

    end = begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A cluster that is ready, with the topics of the shop."""

    what: str  # for people
    client: Mapping[str, Any]  # settings of clients
    source: Mapping[str, str]  # options of format("rocketmq")
    brokers: Sequence[str]
    orders: str
    activity: str
    sufferer: Sufferer = field(default_factory=Untouchable)

    @property
    def topics(self) -> tuple[str, str]:
        return self.orders, self.activity


@contextmanager
def embedded(folder: Path) -> Iterator[Subject]:
    """One of our own, whose servers are processes, until the `with` is left."""
    with EmbeddedCluster(
        EMBEDDED_BROKERS,
        slaves={"broker-a": 1},
        folder=folder,
        processes=True,
        settings=EMBEDDED_SETTINGS,
    ) as cluster:
        client = {"namesrv": cluster.namesrv}
        with Admin(namesrv=cluster.namesrv) as admin:
            brokers = _open_shop(admin, "orders", "activity")
        yield Subject(
            what=f"embedded, {len(brokers)} brokers in processes of their own, one with a slave",
            client=client,
            source=client,
            brokers=brokers,
            orders="orders",
            activity="activity",
            sufferer=FaultyServers(cluster.broker),
        )


@contextmanager
def given(
    client: Mapping[str, Any],
    source: Mapping[str, str],
    name: str,
    sufferer: Sufferer | None = None,
) -> Iterator[Subject]:
    """One that is there; its topics begin with this name, and are deleted in the end."""
    orders, activity = f"{name}-orders", f"{name}-activity"
    with Admin(**client) as admin:
        try:
            brokers = _open_shop(admin, orders, activity)
            yield Subject(
                what=f"at {client['namesrv']}, {len(brokers)} brokers",
                client=client,
                source=source,
                brokers=brokers,
                orders=orders,
                activity=activity,
                sufferer=sufferer or Untouchable(),
            )
        finally:
            for topic in (orders, activity):
                admin.delete_topic(topic, missing_ok=True)


def _open_shop(admin: Admin, *topics: str) -> list[str]:
    """Make the topics on all brokers; the names of these."""
    for topic in topics:
        admin.create_topic(topic, queues=QUEUES)
    return sorted({queue.broker_name for queue in admin.publish_queues(topics[0])})
