"""The audit on books written by hand: every kind of message, with an answer known beforehand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.message import MessageQueue
from rocketpipe.report.facts import Reconciled, ReportFacts
from rocketpipe.spark.jobs import reconciliation
from rocketpipe.spark.jobs.attempts import read_records, with_defaults
from rocketpipe.spark.jobs.audit import Audit, AuditSettings, audit
from rocketpipe.spark.jobs.skew import skew
from tests.jobs.ledger import START, TOPIC, Ledger

SLOW = "isolated for 1.9 s: took 812 ms"
GONE = "unreachable, isolated for 9.8 s: gave no answer after 1000 ms"


def busy_day() -> Ledger:
    """Every kind of message once or more; each name says what it is."""
    books = Ledger()
    for number in range(40):  # evenly over two brokers with two queues each
        broker, queue = f"broker-{'ab'[number % 2]}", number // 2 % 2
        books.send(f"plain-{number}", broker=broker, queue=queue, at=number * 100, took=1 + number)
    books.send("batch-1", "batch-2", "batch-3", at=4000)
    # A broker that gave no answer had stored it: stored twice, acknowledged once.
    books.attempt("lost-answer", error="RequestTimeout", took=1000, at=4100)
    books.send("lost-answer", number=2, broker="broker-b", at=5100)
    books.store("lost-answer")
    # The same without a second copy: the first attempt really came to nothing.
    books.attempt("retried", error="ConnectionLost", at=5200)
    books.send("retried", number=2, broker="broker-b", at=5210)
    # Answered late, while the second attempt was on its way, which was given up.
    books.attempt("late", error="RequestTimeout", took=1000, at=5300)
    books.attempt("late", is_late=True, took=1500, at=5300)
    books.attempt("late", number=2, broker="broker-b", error="ClientError", took=500, at=6300)
    books.store("late")
    # No answer at all, but stored.
    books.attempt("never-told", error="RequestTimeout", took=3000, at=6400)
    books.store("never-told")
    books.attempt("failed", error="ConnectFailed", at=6500)
    books.attempt("failed", number=2, broker="broker-b", error="ConnectFailed", at=6600)
    # Acknowledged, and not there; one of them in the middle of a batch.
    books.attempt("gone", at=6700)
    books.attempt("in-batch-1", "in-batch-gone", "in-batch-3", at=6800)
    books.store("in-batch-1", "in-batch-3")
    books.attempt("unsafe-gone", status="FLUSH_DISK_TIMEOUT", at=6900)
    books.attempt("oneway", status=None, is_oneway=True, at=7000)
    books.store("oneway")
    books.attempt("oneway-gone", status=None, is_oneway=True, at=7000)
    books.attempt("delayed", is_delayed=True, at=7100)
    books.attempt("half", is_transaction=True, at=7200)
    books.send("committed", is_transaction=True, at=7300)
    # Tried again although it was stored, or no broker would take it.
    books.attempt("unsafe", status="FLUSH_SLAVE_TIMEOUT", at=7400)
    books.store("unsafe")
    books.send("unsafe", number=2, broker="broker-b", at=7500)
    books.attempt("illegal", error="BrokerError", code=13, remark="too large", at=7600)
    books.attempt("illegal", number=2, broker="broker-b", error="BrokerError", code=13, at=7700)
    books.send("chosen", queue=1, reason="the caller chose the queue", at=7800)
    # Of somebody else, and in another topic: an id there is another message.
    books.store("foreign-1", "foreign-2")
    books.store("plain-1", topic="%RETRY%readers")
    # Sick brokers, passed over in two stretches.
    for number in range(10):
        sick = {"broker-b": SLOW if number < 5 else GONE}
        at = 10_000 + number * 300 + (5000 if number >= 5 else 0)
        books.send(f"around-{number}", at=at, passed_over=sick, reason="in turn")
    books.send("around-busy", at=30_000, passed_over={"broker-b": "busy, 3.0 ms x 2 in flight"})
    costs = {"broker-a": "3.0 ms x 2 in flight"}
    books.send("cheaper", broker="broker-b", at=31_000, passed_over=costs)
    return books


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    folder = tmp_path_factory.mktemp("audit")
    books = busy_day()
    messages = books.write_table(folder / "table")
    again = [row for row in books.stored if row["messageId"] in ("plain-3", "plain-4")]
    books.write_table(folder / "table", again)  # the same places once more: not stored twice
    settings = AuditSettings(
        attempts=books.write_attempts(folder / "attempts.jsonl"), messages=[messages]
    )
    found = audit(spark, settings)
    yield found
    found.close()


@pytest.fixture(scope="module")
def facts(found: Audit) -> ReportFacts:
    return found.facts("A busy day")


@pytest.fixture(scope="module")
def orders(found: Audit) -> Reconciled:
    assert found.reconciliation is not None
    (orders,) = found.reconciliation  # what is in other topics is not looked at
    assert orders.topic == TOPIC
    return orders


def ids(found: Audit, table: str) -> set[str]:
    return {row.message_id for row in found.tables[table].collect()}


def test_what_is_lost_is_named(found: Audit, orders: Reconciled) -> None:
    lost = {"gone", "in-batch-gone", "unsafe-gone"}
    assert ids(found, "lost") == set(orders.lost_ids) == lost
    assert (orders.lost, found.lost) == (3, 3)
    statuses = {row.message_id: row.status for row in found.tables["lost"].collect()}
    assert statuses["unsafe-gone"] == "FLUSH_DISK_TIMEOUT"


def test_what_is_stored_more_than_once_is_named(found: Audit, orders: Reconciled) -> None:
    assert ids(found, "repeated") == set(orders.repeated_ids) == {"lost-answer", "unsafe"}
    assert orders.repeated == 2
    (counts,) = found.tables["reconciliation"].collect()
    assert counts.rows_twice == 2  # rows that tell of the same place


def test_what_no_producer_was_told_of_is_named(found: Audit, orders: Reconciled) -> None:
    assert ids(found, "unacknowledged") == set(orders.unacknowledged_ids) == {"never-told"}


def test_every_other_kind_is_counted(orders: Reconciled) -> None:
    messages = 40 + 3 + 5 + 1 + 3 + 1 + 2 + 1 + 2 + 1 + 1 + 1 + 12
    assert orders.sent == messages
    told = ("failed", "oneway", "oneway_missing", "waiting", "uncommitted", "expired", "others")
    assert {name: getattr(orders, name) for name in told} == {
        "failed": 2,  # and "illegal"
        "oneway": 2,
        "oneway_missing": 1,
        "waiting": 1,
        "uncommitted": 1,
        "expired": 0,
        "others": 2,
    }
    # Neither the failed two nor "never-told", nor one-way.
    assert orders.acknowledged == messages - 2 - 1 - 2
    assert orders.stored == messages - 2 - 3 - 1 - 1 - 1


def test_totals_of_sends(facts: ReportFacts) -> None:
    totals = facts.totals
    assert (totals.sends, totals.messages) == (69, 73)
    assert (totals.acknowledged, totals.failed, totals.oneway) == (64, 3, 2)
    # A late answer is no attempt.
    assert (totals.attempts, totals.retries) == (75, 6)
    assert totals.max_ms == pytest.approx(3000)
    assert totals.p50_ms == pytest.approx(13, abs=1)
    counts = {row.attempts: (row.sends, row.acknowledged) for row in facts.attempts_per_send}
    assert counts == {1: (63, 60), 2: (6, 4)}


def test_brokers_queues_and_windows(found: Audit, facts: ReportFacts) -> None:
    brokers = {row.broker: row for row in facts.brokers}
    a, b = brokers["broker-a"], brokers["broker-b"]
    assert (a.attempts, b.attempts) == (48, 27)
    assert (a.failed, b.failed) == (6, 2)  # an attempt that was given up has not failed
    assert (a.retries, b.retries) == (0, 6)
    assert sum(row.attempts for row in facts.windows) == 75
    assert sum(row.attempts for row in facts.latency) == 75
    assert sum(cell.attempts for cell in facts.heat) == 73  # one-way sends take no time
    assert sum(row.attempts for row in facts.queues) == 75
    assert facts.window_ms == 1000
    assert {row.start_ms is not None and row.start_ms % 1000 for row in facts.windows} == {0}
    slowest = {row.queue_id: row.max_ms for row in facts.queues if row.broker == "broker-a"}
    assert slowest[0] == 3000


def test_isolations_are_the_stretches_that_attempts_tell_of(facts: ReportFacts) -> None:
    told = [
        (row.broker, row.start_ms - START, row.passed_over, row.why) for row in facts.isolations
    ]
    assert told == [
        ("broker-b", 10_000, 5, "took 812 ms"),
        ("broker-b", 16_500, 5, "gave no answer after 1000 ms"),
        ("broker-b", 30_000, 1, "was busy"),
    ]
    assert facts.isolations[0].end_ms == START + 11_200


def test_what_the_policy_moved_away(facts: ReportFacts) -> None:
    moved = {row.broker: row for row in facts.moved}
    firsts = 69 - 1  # but for the one whose queue the caller chose
    assert moved["broker-a"].expected == moved["broker-b"].expected == firsts / 2
    assert moved["broker-a"].sends + moved["broker-b"].sends == firsts
    assert moved["broker-b"].moved == -moved["broker-a"].moved == firsts / 2 - 21
    assert moved["broker-b"].isolated == 11 / 2
    assert moved["broker-a"].isolated == 0


def test_how_evenly_queues_were_chosen(facts: ReportFacts) -> None:
    tests = {(row.policy, row.broker): row for row in facts.skew}
    assert set(tests) == {
        *(("java5", broker) for broker in (None, "broker-a", "broker-b")),
        *(("caller", broker) for broker in (None, "broker-a")),
    }
    whole = tests["java5", None]
    assert (whole.queues, whole.sends, whole.least, whole.most) == (4, 68, 10, 37)
    mean = 68 / 4
    counts = (37, 10, 11, 10)
    expected = sum((count - mean) ** 2 / mean for count in counts)
    assert whole.chi_square == pytest.approx(expected)
    assert whole.p_value < 1e-6
    assert tests["java5", "broker-b"].p_value > 0.5


def test_retries_that_should_not_have_been(found: Audit, facts: ReportFacts) -> None:
    rows = found.tables["needless_retries"].collect()
    assert {(row.kind, row.message_id, row.next_broker) for row in rows} == {
        ("answer_lost", "lost-answer", "broker-b"),
        ("answer_lost", "late", "broker-b"),
        ("stored_unsafe", "unsafe", "broker-b"),
        ("hopeless", "illegal", "broker-b"),
    }
    assert {row.kind: row.retries for row in facts.needless_retries} == {
        "answer_lost": 2,
        "stored_unsafe": 1,
        "hopeless": 1,
    }


def test_the_tables_are_written(found: Audit, spark: SparkSession, tmp_path: Path) -> None:
    for _ in range(2):  # again over the old ones
        found.write(str(tmp_path / "out"))
    names = {folder.name for folder in (tmp_path / "out").iterdir() if folder.is_dir()}
    assert names == set(found.tables)
    lost = spark.read.parquet(str(tmp_path / "out" / "lost"))
    assert {row.message_id for row in lost.collect()} == {"gone", "in-batch-gone", "unsafe-gone"}


# What is read, and what can't be.


def run(spark: SparkSession, **settings: Any) -> Audit:
    return audit(spark, AuditSettings(**settings))


def test_only_the_topics_and_the_time_that_are_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    books = Ledger()
    for number in range(10):
        books.send(f"m-{number}", at=number * 1000)
    books.attempt("other", topic="payments", at=5000)
    attempts = books.write_attempts(tmp_path / "attempts.jsonl")
    table = books.write_table(tmp_path / "table")
    limits = {"since_ms": START + 3000, "until_ms": START + 7000}
    found = run(spark, attempts=attempts, messages=[table], topics=[TOPIC], **limits)
    (row,) = found.reconciliation or ()
    assert (row.topic, row.sent, row.stored, row.lost) == (TOPIC, 4, 4, 0)
    everything = run(spark, attempts=attempts, messages=[table])
    assert everything.lost == 1
    assert [row.topic for row in everything.reconciliation or ()] == ["payments", TOPIC]
    no_table = run(spark, attempts=attempts)
    assert (no_table.reconciliation, no_table.lost) == (None, 0)
    assert no_table.facts("x").totals.sends == 11


def test_records_of_an_older_recorder_and_broken_ones(spark: SparkSession, tmp_path: Path) -> None:
    books = Ledger()
    books.send("new")
    books.send("old", at=10)
    for name in ("policy", "is_late", "is_delayed", "queue_offset"):
        del books.attempts[1][name]
    file = Path(books.write_attempts(tmp_path / "attempts.jsonl"))
    file.write_text(file.read_text() + '{"started_ms": 12, "topic": "orders"}\nno JSON\n')
    found = run(spark, attempts=str(file), messages=[books.write_table(tmp_path / "table")])
    (row,) = found.reconciliation or ()
    assert (row.acknowledged, row.stored, row.lost) == (2, 2, 0)
    assert found.notes == [f"2 of 4 records in {file} can't be read"]
    assert {row.policy for row in found.facts("x").moved} == {"java5", "unknown"}


def test_nothing_was_sent(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    table = Ledger()
    table.store("foreign")
    found = run(
        spark,
        attempts=str(tmp_path / "attempts"),
        messages=[table.write_table(tmp_path / "table")],
    )
    assert (found.lost, found.reconciliation) == (0, [])
    facts = found.facts("Nothing")
    assert (facts.totals.sends, facts.windows, facts.heat) == (0, [], [])


def test_a_quarantined_message_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    books = Ledger()
    books.send("good", "bad")
    good, bad = books.stored
    table = books.write_table(tmp_path / "table", [good])
    books.write_table(tmp_path / "table" / "_quarantine", [bad])
    found = run(spark, attempts=books.write_attempts(tmp_path / "a.jsonl"), messages=[table])
    assert found.lost == 0


def test_what_was_deleted_by_retention_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    books = Ledger()
    books.attempt("old-1", "old-2", "new", queue_offset=8)
    books.attempt("elsewhere", queue=1, queue_offset=3)
    books.attempt("half", is_transaction=True, queue_offset=2)
    books.attempt("delayed", is_delayed=True, queue_offset=2)
    books.attempt("unknown place")
    file = books.write_attempts(tmp_path / "attempts.jsonl")
    messages = reconciliation.messages(
        spark,
        reconciliation.Evidence(
            attempts=with_defaults(read_records(spark, file)),
            stored=spark.createDataFrame([], reconciliation.STORED),
            committed=None,
            first_offsets={MessageQueue(TOPIC, "broker-a", 0): 10},
        ),
    )
    (row,) = reconciliation.counts(messages).collect()
    assert (row.expired, row.lost, row.uncommitted, row.waiting) == (2, 3, 1, 1)
    lost = {each.message_id for each in reconciliation.which(messages, "lost").collect()}
    assert lost == {"new", "elsewhere", "unknown place"}


def test_a_half_message_that_was_committed_must_be_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    books = Ledger()
    books.attempt("half", is_transaction=True, queue_offset=2)
    books.attempt("rolled back", is_transaction=True, queue_offset=2)
    file = books.write_attempts(tmp_path / "attempts.jsonl")
    messages = reconciliation.messages(
        spark,
        reconciliation.Evidence(
            attempts=with_defaults(read_records(spark, file)),
            stored=spark.createDataFrame([], reconciliation.STORED),
            committed=spark.createDataFrame([(TOPIC, "half")], "topic string, message_id string"),
            first_offsets={},
        ),
    )
    assert [row.message_id for row in reconciliation.which(messages, "lost").collect()] == ["half"]


def test_what_can_not_be_read_is_told_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    books = Ledger()
    books.send("m")
    attempts = books.write_attempts(tmp_path / "attempts.jsonl")
    (tmp_path / "odd.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(JobError, match=r"none of its 2 records is one of an attempt"):
        run(spark, attempts=str(tmp_path / "odd.jsonl"))
    with pytest.raises(JobError, match=r"there is no table in .*nowhere"):
        run(spark, attempts=attempts, messages=[str(tmp_path / "nowhere")])
    spark.range(3).write.parquet(str(tmp_path / "other"))
    with pytest.raises(JobError, match="is no archived table: it has no topic, brokerName"):
        run(spark, attempts=attempts, messages=[str(tmp_path / "other")])
    with pytest.raises(JobError, match=r"attempts: .*nowhere\.jsonl does not exist"):
        run(spark, attempts=str(tmp_path / "nowhere.jsonl"))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "give attempts, trace, or both"),
        ({"trace": "T"}, "give source with its namesrv"),
        ({"attempts": "a", "window": 0}, "window is 0"),
        ({"attempts": "a", "window": float("nan")}, "window is nan"),
        ({"attempts": "a", "since_ms": 5, "until_ms": 5}, "until_ms is 5"),
        ({"attempts": "a", "messages": "table"}, "are lists"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidSetting, match=text):
        AuditSettings(**settings)


def test_rows_that_a_table_has_twice_are_told(orders: Reconciled, facts: ReportFacts) -> None:
    assert orders.rows_twice == 2
    assert "2 rows of the table tell of a place that another row tells of" in facts.notes


def test_a_broker_that_nobody_chose_is_left_out_of_the_skew(spark: SparkSession) -> None:
    counts = spark.createDataFrame(
        [("java5", "t", "broker-a", 0, 5), ("java5", "t", "broker-b", 0, 0)],
        "chosen_by string, topic string, broker string, queue_id bigint, sends bigint",
    )
    modes = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    try:
        for name, mode in modes.items():  # which divides before it leaves rows out
            spark.conf.set(name, mode)
        assert {row.broker for row in skew(counts).collect()} == {None, "broker-a"}
    finally:
        for name in modes:
            spark.conf.unset(name)
