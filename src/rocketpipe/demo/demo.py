"""The whole demo: a run, or one under each policy, then the reconciliation and the report."""

import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from rocketpipe.client.queue_choice import POLICIES
from rocketpipe.clock import Clock, SystemClock
from rocketpipe.demo.background_spark import BackgroundSpark
from rocketpipe.demo.books import Books
from rocketpipe.demo.clusters import Subject
from rocketpipe.demo.interrupts import Interrupts
from rocketpipe.demo.run import POLL_NAME_SERVER_SECONDS, PRODUCERS, Run, Sent
from rocketpipe.demo.settings import DemoSettings
from rocketpipe.demo.tally import quantile
from rocketpipe.demo.view import Snapshot, View
from rocketpipe.report.facts import Event, PolicySummary, Reconciled, ReportFacts
from rocketpipe.report.page import write_report
from rocketpipe.spark.jobs.audit import AuditSettings, audit
from rocketpipe.spark.jobs.failures import one_line_errors

SPARK_CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    # Much code runs once, on little data: to make it fast takes longer than to run it slowly.
    # With the first compiler alone Java keeps little room for code, and an audit fills it.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:ReservedCodeCacheSize=192m",
    "spark.sql.adaptive.enabled": "false",
}
OpenCluster = Callable[[Path], AbstractContextManager[Subject]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What one run came to."""

    policy: str
    sent: Sent
    books: Books
    facts: ReportFacts
    orders: str  # the topics by name
    activity: str

    @property
    def lost(self) -> int:
        """By the audit or by the senders' books: whichever finds more."""
        return max(sum(row.lost for row in self._reconciled), len(self.books.lost))

    @property
    def problems(self) -> list[str]:
        """What must not be, a line each."""
        found = []
        if self.lost:
            found.append(f"messages that were acknowledged, and are not stored: {self.lost}")
        if rows := sum(row.rows_twice for row in self._reconciled):
            found.append(f"rows that the table has twice: {rows}")
        if customers := self.books.out_of_order:
            found.append(f"customers whose orders are out of order: {len(customers)}")
        told = {row.topic: (row.sent, row.acknowledged) for row in self._reconciled}
        for topic, totals in self.sent.topics.items():
            if told.get(topic) != (mine := (totals.sends, totals.acknowledged)):
                found.append(
                    f"{topic}: the senders count {mine[0]} sent and {mine[1]} acknowledged, "
                    f"the audit {told.get(topic)}"
                )
        return found

    def summary(self) -> dict[str, Any]:
        """The numbers that people look at first."""
        topics = self.sent.topics
        latencies = [each for totals in topics.values() for each in totals.latencies]
        free, bound = topics[self.activity], topics[self.orders]
        return {
            "policy": self.policy,
            "sent": sum(totals.sends for totals in topics.values()),
            "acknowledged": sum(totals.acknowledged for totals in topics.values()),
            "stored": self.books.stored,
            "lost": self.lost,
            "repeated": self.books.repeated,
            "unacknowledged": sum(row.unacknowledged for row in self._reconciled),
            "retried": free.retried + bound.retried,
            "free_sent": free.sends,
            "free_failed": free.failed,
            "bound_sent": bound.sends,
            "bound_resent": bound.resent,
            "out_of_order": len(self.books.out_of_order),
            "p50_ms": _ms(quantile(latencies, 0.5)),
            "p99_ms": _ms(quantile(latencies, 0.99)),
            "free_p99_ms": _ms(quantile(free.latencies, 0.99)),
            "bound_p99_ms": _ms(quantile(bound.latencies, 0.99)),
        }

    @property
    def _reconciled(self) -> Sequence[Reconciled]:
        return self.facts.reconciliation or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What a demo came to, and where to read about it."""

    runs: Sequence[RunResult]
    report: Path

    @property
    def problems(self) -> list[str]:
        several = len(self.runs) > 1
        return [
            f"{run.policy}: {problem}" if several else problem
            for run in self.runs
            for problem in run.problems
        ]


class Demo:
    """`run` does it all; its steps are methods, so that a test can tamper between two of them."""

    def __init__(
        self,
        settings: DemoSettings,
        open_cluster: OpenCluster,
        view: View,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self._open_cluster = open_cluster
        self._view = view
        self._clock = clock or SystemClock()
        self._spark = BackgroundSpark(
            "rocketpipe demo",
            master=settings.master,
            conf={**SPARK_CONF, "spark.local.dir": str(self._scratch), **settings.conf},
        )

    def run(self) -> DemoResult:
        """The result; nothing is left running then, nor after a Ctrl-C at any time."""
        settings = self.settings
        policies = [*POLICIES] if settings.compare else [settings.policy]
        with Interrupts() as interrupts, ExitStack() as stack:
            stack.callback(shutil.rmtree, self._scratch, ignore_errors=True)
            stack.callback(self._spark.close)
            self._spark.start()
            runs = [self.run_policy(policy, interrupts) for policy in policies]
            return DemoResult(runs=runs, report=self.report(runs))

    def run_policy(self, policy: str, interrupts: Interrupts) -> RunResult:
        settings = self.settings
        folder = settings.folder / policy if settings.compare else settings.folder
        self._show("starting the brokers and Spark", policy)
        with self._open_cluster(folder / "cluster") as subject:
            run = Run(settings, policy, folder, subject, self._spark.get(), self._view, self._clock)
            sent = run.send(interrupts)
            self._show("waiting until Spark has read it all", policy)
            run.drain()
        self._show("reconciling", policy)
        return self.conclude(run, sent)

    @one_line_errors()
    def conclude(self, run: Run, sent: Sent) -> RunResult:
        """From the tables alone: the cluster may be gone."""
        books = run.close_books(sent)
        found = audit(
            run.spark,
            AuditSettings(
                attempts=str(run.pipeline.attempts),
                messages=[str(run.pipeline.messages)],
                topics=run.subject.topics,
            ),
        )
        try:
            facts = found.facts(f"rocketpipe demo: {run.settings.scenario}, under {run.policy}")
            found.write(str(run.tables / "audit"))
        finally:
            found.close()
        result = RunResult(
            policy=run.policy,
            sent=sent,
            books=books,
            facts=facts,
            orders=run.subject.orders,
            activity=run.subject.activity,
        )
        return replace(result, facts=self._with_the_run(facts, run, result))

    def report(self, runs: Sequence[RunResult]) -> Path:
        """Write it; of several runs that under the chosen policy is told in full."""
        self._show("writing the report", "")
        main = next((run for run in runs if run.policy == self.settings.policy), runs[0])
        facts = main.facts
        if len(runs) > 1:
            facts = replace(
                facts,
                comparison=[PolicySummary(policy=run.policy, facts=run.facts) for run in runs],
            )
        path = self.settings.folder / "report.html"
        write_report(path, facts)
        return path

    @property
    def _scratch(self) -> Path:
        return self.settings.folder / ".spark"

    def _show(self, phase: str, policy: str) -> None:
        self._view.show(Snapshot(title=f"rocketpipe demo {policy}".rstrip(), phase=phase))

    def _with_the_run(self, facts: ReportFacts, run: Run, result: RunResult) -> ReportFacts:
        settings, sent = self.settings, result.sent
        return replace(
            facts,
            events=[
                Event(
                    at_ms=sent.started_ms + round(each.began * 1000),
                    until_ms=None
                    if each.ended is None
                    else sent.started_ms + round(each.ended * 1000),
                    broker=each.event.broker,
                    what=each.event.what,
                )
                for each in sent.played
            ],
            pipeline=run.pipeline.batches,
            settings={
                "scenario": settings.scenario,
                "policy": run.policy,
                "seconds": f"{settings.seconds:g}",
                "messages a second": f"{settings.rate:g}",
                "seed": str(settings.seed),
                "cluster": run.subject.what,
                "producers": ", ".join(PRODUCERS),
                "poll_name_server_interval": f"{POLL_NAME_SERVER_SECONDS:g} s",
                "Spark master": settings.master,
            },
            versions=_versions(run),
            how_to_reproduce=_command(settings, run.policy),
            remarks=_remarks(result),
        )


def _remarks(result: RunResult) -> list[str]:
    """What the pictures do not say by themselves."""
    sent, books = result.sent, result.books
    free, bound = sent.topics[result.activity], sent.topics[result.orders]
    return [
        f"{result.activity}: any broker may take these. {free.sends:,} were sent, "
        f"{free.failed:,} failed.",
        f"{result.orders}: each is bound to the queue of its customer, since elsewhere it would be "
        f"out of order, so nobody else can take it while that broker is away. {bound.failed:,} "
        f"sends failed, and the shop sent again {bound.resent:,} times, each time under a new "
        f"message id. The orders of {len(books.out_of_order) or 'no'} customers are out of order.",
        *(f"Left out of the scenario: {each}." for each in sent.left_out),
    ]


def _versions(run: Run) -> Mapping[str, str]:
    jvm: Any = run.spark._jvm
    return {
        "rocketpipe": metadata.version("rocketpipe"),
        "Python": platform.python_version(),
        "Spark": run.spark.version,
        "Java": str(jvm.System.getProperty("java.version")),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _command(settings: DemoSettings, policy: str) -> str:
    words = [
        *("rocketpipe demo", "--scenario", settings.scenario, "--policy", policy),
        *("--seconds", f"{settings.seconds:g}", "--rate", f"{settings.rate:g}"),
        *("--seed", str(settings.seed)),
        *(("--namesrv", settings.source["namesrv"]) if settings.source else ()),
        *(("--compare",) if settings.compare else ()),
    ]
    return " ".join(words)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
