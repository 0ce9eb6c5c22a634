"""Facts for reports: realistic runs with and without faults, and the odd ones."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from rocketpipe.report.facts import (
    AttemptsPerSend,
    Event,
    HeatCell,
    Isolation,
    MicroBatch,
    Moved,
    NeedlessRetries,
    PolicySummary,
    Reconciled,
    ReportFacts,
    Skew,
    Totals,
    Traffic,
)

START = 1_794_943_534_000
HOSTILE = "<script>alert('x')</script>\"&'"
SECOND = 1000


def fault_script(seconds: int = 90) -> list[Event]:
    at = [START + round(seconds * share * SECOND) for share in (0.15, 0.35, 0.45, 0.6, 0.8, 0.9)]
    return [
        Event(at_ms=at[0], until_ms=at[1], broker="broker-b", what="is slow by 800 ms"),
        Event(at_ms=at[2], until_ms=at[3], broker="broker-a", what="is busy"),
        Event(at_ms=at[3], until_ms=at[4], broker="broker-c", what="is killed"),
        Event(at_ms=at[4], until_ms=at[5], broker="broker-b", what="loses answers after storing"),
    ]


def run(
    *,
    policy: str = "java5",
    seconds: int = 90,
    rate: int = 200,
    brokers: Sequence[str] = ("broker-a", "broker-b", "broker-c"),
    events: Sequence[Event] | None = None,
    window: int = SECOND,
    seed: int = 7,
) -> ReportFacts:
    """A run of a producer that avoids faulty brokers, as well as its policy can."""
    dice = random.Random(seed)
    events = fault_script(seconds) if events is None else events
    leak = {"round-robin": 1.0, "java4": 0.02, "java5": 0.06, "peak-ewma": 0.03}.get(policy, 0.05)
    windows, latency, totals_by = [], [], {name: [0, 0, 0] for name in brokers}
    heat: Counter[tuple[int, int]] = Counter()
    took_all: list[float] = []
    per_send: Counter[int] = Counter()
    for start in range(START, START + seconds * SECOND, window):
        sick = {
            event.broker: event.what
            for event in events
            if event.at_ms < start + window and start < (event.until_ms or 1 << 62)
        }
        weights = [leak if name in sick else 1.0 for name in brokers]
        took: dict[str, list[float]] = {name: [] for name in brokers}
        failed: Counter[str] = Counter()
        for _ in range(rate * window // SECOND):
            name = dice.choices(brokers, weights)[0]
            ms = math.exp(dice.gauss(0.6, 0.5))
            if "slow" in sick.get(name, ""):
                ms += 800
            if sick.get(name) in ("is killed", "is busy"):
                failed[name] += 1
                took[name].append(1.0 + dice.random())
                name = next(each for each in brokers if each not in sick)
                per_send[2] += 1
                per_send[1] -= 1
            per_send[1] += 1
            took[name].append(ms)
        everything = sorted(ms for values in took.values() for ms in values)
        took_all += everything
        for ms in everything:
            heat[start, math.floor(math.log10(ms) * 5)] += 1
        latency.append(_traffic(everything, start_ms=start))
        for name, values in took.items():
            if values:
                row = _traffic(sorted(values), start_ms=start, broker=name)
                windows.append(replace(row, failed=failed[name], stored=len(values) - failed[name]))
                totals_by[name][0] += len(values)
                totals_by[name][1] += failed[name]
    took_all.sort()
    sends = sum(per_send.values())
    retries = sum((attempts - 1) * number for attempts, number in per_send.items())
    queues = [
        Traffic(
            topic="orders",
            broker=name,
            queue_id=queue,
            attempts=totals_by[name][0] // 4 + dice.randint(-9, 9),
            p99_ms=7.0,
        )
        for name in brokers
        for queue in range(4)
    ]
    return ReportFacts(
        title="Orders through failing brokers",
        started_ms=START,
        ended_ms=START + seconds * SECOND,
        window_ms=window,
        policies=[policy],
        totals=Totals(
            sends=sends,
            messages=sends,
            acknowledged=sends,
            attempts=sends + retries,
            retries=retries,
            **_quantiles(took_all),
        ),
        brokers=[
            replace(
                _traffic(took_all, broker=name),
                attempts=attempts,
                stored=attempts - failures,
                failed=failures,
            )
            for name, (attempts, failures, _) in totals_by.items()
        ],
        queues=queues,
        windows=windows,
        latency=latency,
        heat=[
            HeatCell(start_ms=start, bucket=bucket, attempts=number)
            for (start, bucket), number in sorted(heat.items())
        ],
        attempts_per_send=[
            AttemptsPerSend(attempts=attempts, sends=number, acknowledged=number)
            for attempts, number in sorted(per_send.items())
        ],
        isolations=[
            Isolation(
                policy=policy,
                broker=event.broker or "",
                start_ms=event.at_ms + 700,
                end_ms=(event.until_ms or START + seconds * SECOND) + 900,
                passed_over=4000,
                why="took 812 ms",
            )
            for event in events
            if "losing" not in event.what and policy != "round-robin"
        ],
        moved=[
            Moved(
                policy=policy,
                broker=name,
                sends=totals_by[name][0],
                expected=sum(each[0] for each in totals_by.values()) / len(brokers),
                isolated=1200.0,
            )
            for name in brokers
        ],
        skew=[
            Skew(
                policy=policy,
                topic="orders",
                broker=name,
                queues=4 if name else 4 * len(brokers),
                sends=sends,
                least=queues[0].attempts,
                most=queues[-1].attempts,
                chi_square=3.2 if name else 812.4,
                p_value=0.36 if name else 1e-12,
            )
            for name in (None, *brokers)
        ],
        needless_retries=[
            NeedlessRetries(
                kind="answer_lost", retries=3, sample=["7F0000010F9818B4AAC27B0C8E9A0000"]
            )
        ],
        reconciliation=[
            Reconciled(
                topic="orders",
                sent=sends,
                acknowledged=sends - 2,
                stored=sends,
                lost=0,
                repeated=3,
                unacknowledged=2,
                others=12,
                repeated_ids=[f"7F0000010F9818B4AAC27B0C8E9A{n:04X}" for n in range(3)],
                unacknowledged_ids=[f"7F0000010F9818B4AAC27B0C8E9B{n:04X}" for n in range(2)],
            )
        ],
        events=events,
        settings={"policy": policy, "send_timeout": "3.0", "rate": f"{rate} per second"},
        versions={"rocketpipe": "0.1.0", "Python": "3.11.7", "PySpark": "4.3.0"},
        how_to_reproduce=f"make demo\nrocketpipe demo --policy {policy} --seed {seed}",
        pipeline=_pipeline(seconds, rate, dice) if sends else (),
    )


def _pipeline(seconds: int, rate: int, dice: random.Random) -> list[MicroBatch]:
    rows = []
    for second in range(3, seconds + 7, 3):  # it goes on when the last is sent
        lag = max(0, round(dice.gauss(rate, rate / 3)))
        for query, share in (("messages", 1.0), ("attempts", 1.03)):
            rows.append(
                MicroBatch(
                    time_ms=START + second * SECOND,
                    rows=round(rate * 3 * share),
                    rows_per_second=rate * share * dice.uniform(0.8, 1.3),
                    lag=lag if query == "messages" else None,
                    query=query,
                )
            )
    return rows


def _traffic(
    took: Sequence[float], start_ms: int | None = None, broker: str | None = None
) -> Traffic:
    return Traffic(
        start_ms=start_ms,
        broker=broker,
        attempts=len(took),
        stored=len(took),
        messages=len(took),
        **_quantiles(took),
    )


def _quantiles(took: Sequence[float]) -> dict[str, Any]:
    if not took:
        return {}
    names = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "max_ms": 1.0}
    return {name: took[int((len(took) - 1) * share)] for name, share in names.items()}


def compared() -> ReportFacts:
    runs = [
        PolicySummary(policy=policy, facts=run(policy=policy, seconds=60, rate=60, seed=3))
        for policy in ("round-robin", "java4", "java5", "peak-ewma")
    ]
    return replace(run(policy="java5", seconds=60), comparison=runs)


def lossy() -> ReportFacts:
    facts = run(seconds=30, rate=100)
    (row,) = facts.reconciliation or ()
    lost = [f"7F0000010F9818B4AAC27B0C8E9C{n:04X}" for n in range(20)]
    bad = replace(row, lost=31, lost_ids=lost, failed=4, oneway=40, oneway_missing=2, waiting=5)
    return replace(facts, reconciliation=[bad, replace(row, topic="payments")])


def nothing() -> ReportFacts:
    return ReportFacts(
        title="Nothing at all", started_ms=0, ended_ms=0, window_ms=1000, reconciliation=[]
    )


def hostile() -> ReportFacts:
    """Every text of it would be a script, were it not escaped."""
    facts = run(seconds=20, rate=50, brokers=[f"broker-{HOSTILE}", "broker-b"], events=[])
    (row,) = facts.reconciliation or ()
    return replace(
        facts,
        title=HOSTILE,
        policies=[HOSTILE],
        queues=[replace(each, topic=HOSTILE) for each in facts.queues],
        events=[Event(at_ms=START + 3000, broker=f"broker-{HOSTILE}", what=HOSTILE)],
        isolations=[
            Isolation(
                policy=HOSTILE,
                broker=f"broker-{HOSTILE}",
                start_ms=START,
                end_ms=START + 900,
                passed_over=1,
                why=HOSTILE,
            )
        ],
        moved=[replace(each, policy=HOSTILE) for each in facts.moved],
        skew=[replace(each, topic=HOSTILE, policy=HOSTILE) for each in facts.skew],
        needless_retries=[NeedlessRetries(kind=HOSTILE, retries=1, sample=[HOSTILE])],
        reconciliation=[replace(row, topic=HOSTILE, repeated_ids=[HOSTILE])],
        pipeline=[MicroBatch(time_ms=START + 9000, rows=1, rows_per_second=1, query=HOSTILE)],
        settings={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        how_to_reproduce=HOSTILE,
        remarks=[HOSTILE],
        notes=[HOSTILE],
        comparison=[PolicySummary(policy=HOSTILE, facts=facts)],
    )


@cache
def samples() -> dict[str, ReportFacts]:
    """Every kind of report, by name."""
    fifty = [f"broker-{number:02d}" for number in range(50)]
    return {
        "faults": run(),
        "compared": compared(),
        "lossy": lossy(),
        "no-faults": replace(run(seconds=40, events=[]), isolations=[], needless_retries=[]),
        "one-broker": run(seconds=15, rate=60, brokers=["broker-a"], events=[]),
        "fifty-brokers": run(seconds=60, rate=250, brokers=fifty, events=[]),
        "an-hour": run(seconds=3600, rate=12, window=30 * SECOND),
        "nothing": nothing(),
        "hostile": hostile(),
    }
