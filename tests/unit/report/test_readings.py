"""The line under each picture: what it says follows from the data."""

from dataclasses import replace

from rocketpipe.report import readings
from rocketpipe.report.comparison import reading as comparison_reading
from rocketpipe.report.facts import Event, HeatCell, Isolation, Reconciled, ReportFacts, Traffic
from rocketpipe.report.shares import effects
from rocketpipe.report.tables import moved_reading
from tests.unit.report.sample_facts import nothing, samples

SECOND = 1000


def two_brokers(*shares: float, event: Event | None = None) -> ReportFacts:
    """A second each, in which broker-b got that share of 100 attempts."""
    windows = [
        Traffic(start_ms=number * SECOND, broker=name, attempts=round(attempts))
        for number, share in enumerate(shares)
        for name, attempts in (("broker-a", 100 - 100 * share), ("broker-b", 100 * share))
    ]
    total = sum(shares) * 100
    return ReportFacts(
        title="x",
        started_ms=0,
        ended_ms=len(shares) * SECOND,
        window_ms=SECOND,
        windows=windows,
        brokers=[
            Traffic(broker="broker-a", attempts=round(100 * len(shares) - total)),
            Traffic(broker="broker-b", attempts=round(total)),
        ],
        events=[event] if event else [],
    )


def test_a_share_is_told_before_and_during_a_fault() -> None:
    event = Event(at_ms=3000, until_ms=5000, broker="broker-b", what="is slow")
    facts = two_brokers(0.33, 0.33, 0.33, 0.03, 0.03, 0.4, event=event)
    assert readings.shares(facts) == (
        "broker-b took 3 % of the traffic while it is slow (33 % before)."
    )
    gone = two_brokers(0.5, 0.5, 0.5, 0, 0, 0.5, event=replace(event, what="is killed"))
    assert "broker-b took no traffic while it is killed (50 % before)" in readings.shares(gone)
    # From the start on there is no before; a fault shorter than a window is told by its window.
    first = two_brokers(0.1, 0.5, event=replace(event, at_ms=0, until_ms=1000))
    assert readings.shares(first) == "broker-b took 10 % of the traffic while it is slow."
    short = two_brokers(0.5, 0.1, event=replace(event, at_ms=1200, until_ms=1300))
    assert effects(short)[0].during == 0.1


def test_shares_without_a_fault() -> None:
    assert readings.shares(two_brokers(0.25, 0.25)) == (
        "broker-a got 75 % of 200 attempts, broker-b 25 %; an even share is 50 %."
    )
    one = replace(two_brokers(0.0), brokers=[Traffic(broker="broker-a", attempts=7)])
    assert readings.shares(one) == "All 7 attempts went to broker-a."


def test_availability() -> None:
    facts = two_brokers(0.5)
    assert readings.availability(facts) == "No attempt failed, and no broker was isolated."
    isolation = Isolation(
        policy="java5", broker="broker-b", start_ms=0, end_ms=2500, passed_over=9, why="slow"
    )
    sick = replace(
        facts,
        brokers=[Traffic(broker="broker-b", attempts=50, failed=1)],
        isolations=[isolation, replace(isolation, start_ms=5000, end_ms=6000)],
    )
    assert readings.availability(sick) == (
        "broker-b was isolated for 3.5 s in 2 stretches and failed 1 attempt."
    )
    once = replace(facts, isolations=[replace(isolation, end_ms=0)])
    assert readings.availability(once) == "broker-b was isolated for a moment."


def test_latency_names_the_worst_window_and_what_was_wrong_then() -> None:
    text = readings.latency(samples()["faults"])
    assert "p99 of 80" in text
    assert text.endswith("while broker-b is slow by 800 ms.")


def test_the_heat_map() -> None:
    cells = [
        HeatCell(start_ms=0, bucket=1, attempts=90),
        HeatCell(start_ms=1000, bucket=10, attempts=10),
    ]
    facts = replace(two_brokers(0.5, 0.5), heat=cells)
    assert readings.heat(facts) == (
        "90 % of the attempts took 1.58 ms to 2.51 ms; 10 (10 %) took 100 ms or more."
    )
    fault = Event(at_ms=1000, broker="broker-b", what="slow")
    assert readings.heat(replace(facts, events=[fault])).endswith("100 % of these during a fault.")
    assert readings.heat(replace(facts, heat=cells[:1])).endswith("and none 100 ms or more.")


def test_attempts_skew_and_pipeline() -> None:
    facts = samples()["faults"]
    assert readings.attempts_per_send(facts).startswith("99.1 % of 18,000 sends needed one attempt")
    assert readings.attempts_per_send(facts).endswith("2 at most; no send failed.")
    assert "more uneven than chance makes it (χ² = 812.4, p < 0.0001)" in readings.skew(facts)
    assert readings.skew(facts).endswith("Within each broker the queues were chosen evenly.")
    assert readings.pipeline(facts).startswith("Spark read ")
    most = max(each.lag for each in facts.pipeline if each.lag is not None)
    assert f"at most {most:,} messages waited" in readings.pipeline(facts)


def test_reconciliation() -> None:
    row = Reconciled(
        topic="t", sent=10, acknowledged=9, stored=9, lost=0, repeated=0, unacknowledged=0
    )
    say = readings.reconciliation
    assert say([row]) == "All 9 acknowledged messages are stored; none twice."
    assert say([replace(row, repeated=1, unacknowledged=2)]) == (
        "All 9 acknowledged messages are stored; 1 is stored more than once; "
        "2 are stored though no producer was told so."
    )
    assert say([row, replace(row, lost=1)]).startswith("1 acknowledged message of 18 is missing")
    assert "wait, were rolled back or are deleted" in say([replace(row, waiting=3)])
    assert say([replace(row, acknowledged=0)]).startswith("No message was acknowledged")
    assert say(samples()["lossy"].reconciliation or ()).startswith("31 acknowledged messages of")


def test_the_comparison() -> None:
    text = comparison_reading(samples()["compared"].comparison)
    assert "round-robin the highest, 80" in text
    assert text.endswith("no send failed, and nothing was lost under any of them.")
    assert moved_reading(samples()["faults"].moved).startswith("java5 moved ")


def test_of_nothing_nothing_is_said() -> None:
    facts = nothing()
    for read in (readings.shares, readings.availability, readings.latency, readings.heat):
        assert read(facts) == readings.NOTHING
    assert readings.attempts_per_send(facts) == readings.NOTHING
    assert readings.skew(facts) == readings.NOTHING
    assert readings.pipeline(facts) == "No pipeline ran."
