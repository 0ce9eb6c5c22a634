"""The demo from end to end, with its numbers checked by other means than its own."""

import json
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet
import pytest

from rocketpipe import Admin, PullConsumer
from rocketpipe.demo.clusters import EMBEDDED_BROKERS
from rocketpipe.testing import EmbeddedCluster
from rocketpipe.wire.record import decode_records
from tests.apache.cluster import ApacheCluster
from tests.demo.conftest import StartDemo

TAMPERED = str(Path(__file__).with_name("tampered_demo.py"))


def in_the_cluster(namesrv: str, topic: str) -> list[tuple[str, int, int, str]]:
    """All that brokers have of a topic: broker, queue, offset and message id."""
    found = []
    with (
        Admin(namesrv=namesrv) as admin,
        PullConsumer("check", namesrv=namesrv) as consumer,
    ):
        for queue, places in admin.topic_stats(topic).queues.items():
            for answer in consumer.pull_range(queue, places.min_offset, places.max_offset):
                found += [
                    (queue.broker_name, queue.queue_id, each.queue_offset, each.message_id)
                    for each in decode_records(answer)
                ]
    return found


def in_the_table(folder: Path, topic: str) -> list[tuple[str, int, int, str]]:
    """The same, from the Parquet files, without Spark."""
    found = []
    for file in (folder / "tables" / "messages" / f"topic={topic}").rglob("*.parquet"):
        columns = ["brokerName", "queueId", "queueOffset", "messageId"]
        rows = pyarrow.parquet.read_table(file, columns=columns, partitioning=None).to_pylist()
        found += [tuple(row[name] for name in columns) for row in rows]
    return found


def test_a_short_demo_tells_the_truth(start_demo: StartDemo) -> None:
    demo = start_demo("--seconds", "15", "--rate", "60", "--json")
    demo.end()
    assert demo.code == 0, demo.errors
    result = demo.result
    assert result["problems"] == []
    assert (result["lost"], result["out_of_order"]) == (0, 0)
    # 15 s at 60 a second; what the shop sent again comes on top.
    assert result["sent"] == 15 * 60 + result["bound_resent"]
    assert result["bound_resent"] > 0, "the killed broker was noticed"
    assert result["repeated"] + result["unacknowledged"] > 0, "answers were lost"
    assert demo.left_running() == []

    # The brokers' own data, read again without the demo, Spark or recorders.
    with EmbeddedCluster(EMBEDDED_BROKERS, folder=demo.folder / "cluster") as cluster:
        stored = {topic: in_the_cluster(cluster.namesrv, topic) for topic in ("orders", "activity")}
    for topic, rows in stored.items():
        assert Counter(in_the_table(demo.folder, topic)) == Counter(rows)
    rows = [row for each in stored.values() for row in each]
    assert result["stored"] == len(rows)
    copies = Counter(message_id for *_, message_id in rows)
    assert result["repeated"] == sum(count > 1 for count in copies.values())

    attempts = pyarrow.dataset.dataset(demo.folder / "recorded", format="parquet").to_table()
    records = attempts.select(["message_ids", "status"]).to_pylist()
    assert len({record["message_ids"][0] for record in records}) == result["sent"]
    told = {record["message_ids"][0] for record in records if record["status"] is not None}
    assert len(told) == result["acknowledged"]
    assert result["unacknowledged"] == len(copies.keys() - told)
    assert told <= copies.keys()

    report = (demo.folder / "report.html").read_text()
    assert "broker-a" in report
    assert not re.search(r"""(src|href)=["']https?://""", report), "it needs no network"


def test_messages_that_are_taken_away_or_doubled_are_told(start_demo: StartDemo) -> None:
    demo = start_demo(
        *("--seconds", "5", "--rate", "50", "--scenario", "calm", "--json"),
        program=(TAMPERED, "demo"),
    )
    demo.end()
    assert demo.code == 1, (demo.output, demo.errors)
    assert demo.result["problems"] == [
        "messages that were acknowledged, and are not stored: 1",
        "rows that the table has twice: 1",
    ]
    assert demo.result["lost"] == 1
    tampered = json.loads((demo.folder / "tampered.json").read_text())
    for table, message_id in tampered.items():
        folder = demo.folder / "tables" / "audit" / table
        rows = pyarrow.dataset.dataset(folder, format="parquet").to_table(columns=["message_id"])
        told = rows["message_id"].to_pylist()
        assert message_id in told
        # A busy machine may have repeated others by itself.
        assert demo.result[table] == len(told)


@pytest.mark.parametrize(
    ("moment", "scenario", "number"),
    [
        ("starting the brokers and Spark", "killed", signal.SIGINT),
        ("is killed, and comes back", "killed", signal.SIGTERM),
        ("reconciling", "calm", signal.SIGINT),
    ],
)
def test_an_interrupt_leaves_nothing_running(
    start_demo: StartDemo, moment: str, scenario: str, number: signal.Signals
) -> None:
    demo = start_demo("--seconds", "5", "--rate", "50", "--scenario", scenario)
    demo.wait_said(moment)
    demo.signal(number)
    demo.end()
    assert demo.code == 130, demo.errors
    assert "Traceback" not in demo.errors
    assert demo.left_running() == []
    assert not (demo.folder / ".spark").exists()


def test_a_folder_with_something_in_it_is_refused(start_demo: StartDemo, tmp_path: Path) -> None:
    (tmp_path / "out-0").mkdir()
    (tmp_path / "out-0" / "mine").write_text("precious")
    demo = start_demo()
    demo.end()
    assert demo.code == 2
    assert "there is something in it already" in demo.errors
    assert demo.errors.count("\n") == 1


@pytest.mark.apache
@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_a_real_cluster_of_which_a_broker_is_killed(
    start_demo: StartDemo, apache_version: str
) -> None:
    with ApacheCluster(apache_version, settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
        where = ("--namesrv", cluster.namesrv)
        demo = start_demo(*where, "--seconds", "15", "--rate", "40", "--json")
        demo.wait_said("sent ")
        broker = cluster.broker("broker-a")
        broker.kill()
        broker.start()
        demo.end()
        assert demo.code == 0, demo.errors
        assert "left out: slow: this cluster can't be made to" in demo.errors
        result = demo.result
        assert (result["lost"], result["out_of_order"]) == (0, 0)
        assert result["sent"] == 15 * 40 + result["bound_resent"]
        assert result["stored"] >= result["acknowledged"]
        with Admin(namesrv=cluster.namesrv) as admin:
            assert [each for each in admin.topics() if "rocketpipe-demo" in each] == []


if sys.platform != "linux":
    pytest.skip("looks for processes in /proc", allow_module_level=True)
