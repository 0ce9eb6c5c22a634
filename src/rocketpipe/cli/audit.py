"""`audit`: what became of sends, and whether all that was acknowledged is stored."""

import argparse
import platform
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocketpipe.cli.commands import Commands
from rocketpipe.cli.jobs import job_options, job_session, require_spark, source_options
from rocketpipe.cli.load import progress_bar
from rocketpipe.cli.output import print_facts, print_json, print_table, print_title, say
from rocketpipe.cli.texts import TIME_HELP, moment_ms, seconds

if TYPE_CHECKING:
    from rocketpipe.report.facts import ReportFacts

DEFAULT_TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "audit",
        help="reconcile what producers sent with what is stored, and report on it",
        description="Work out, with Spark, what became of sends: latencies, retries and failures "
        "by broker, queue and time, what the policy moved away from sick brokers, and whether all "
        "that was acknowledged is stored. Fails (1) if anything acknowledged is missing.",
        parents=[job_options()],
    )
    add = command.add_argument
    add(
        "--attempts",
        metavar="PATH",
        help="what a recorder wrote: a folder of Parquet files, or a file of JSON lines",
    )
    add(
        "--trace",
        nargs="?",
        const=DEFAULT_TRACE_TOPIC,
        metavar="TOPIC",
        help=f"read the trace topic too, for producers without a recorder; {DEFAULT_TRACE_TOPIC}",
    )
    add(
        "--messages",
        action="append",
        metavar="TABLE",
        help="an archived table to compare with, instead of the topics of the cluster; may be "
        "given several times",
    )
    add("--sends-only", action="store_true", help="do not look at what is stored")
    add(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one; may be given several times",
    )
    add("--since", type=moment_ms, metavar="TIME", help=f"only sends from then on: {TIME_HELP}")
    add("--until", type=moment_ms, metavar="TIME", help="only sends before that")
    add(
        "--window",
        type=seconds,
        metavar="TIME",
        help="of time, to count by; by default such that there are about 120",
    )
    add("--out", metavar="DIR", help="where to write report.html, and the tables as Parquet")
    add("--title", default="What became of the sends", metavar="TEXT", help="of the report")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> bool:
    require_spark(args)
    from rocketpipe.report import write_report
    from rocketpipe.spark.jobs.audit import AuditSettings, audit

    from_cluster = args.trace is not None or not (args.messages or args.sends_only)
    settings = AuditSettings(
        attempts=args.attempts,
        trace=args.trace,
        messages=args.messages or (),
        source=source_options(args) if from_cluster else {},
        topics=args.topic,
        window=args.window,
        since_ms=args.since,
        until_ms=args.until,
        reconciles=not args.sends_only,
    )
    with (
        job_session(args, "audit") as spark,
        nullcontext(lambda: None) if args.json else progress_bar(None, "tables") as advance,
    ):
        found = audit(spark, settings, advance)
        facts = replace(
            found.facts(args.title),
            settings=_settings(args),
            versions={
                "rocketpipe": _version("rocketpipe"),
                "Python": platform.python_version(),
                "PySpark": spark.version,
            },
            how_to_reproduce=_command(args),
        )
        report = None
        if args.out is not None:
            found.write(str(Path(args.out) / "tables"))
            report = Path(args.out) / "report.html"
            write_report(report, facts)
        lost = found.lost
    if args.json:
        print_json(_json(facts, report))
    else:
        _print(facts)
    for note in facts.notes:
        say(f"note: {note}")
    if report is not None and not args.json:
        say(f"report: {report}")
    if lost:
        say(f"{lost} acknowledged messages are not stored")
    return not lost


def _json(facts: "ReportFacts", report: Path | None) -> dict[str, Any]:
    rows = facts.reconciliation
    return {
        "started_ms": facts.started_ms,
        "ended_ms": facts.ended_ms,
        "totals": asdict(facts.totals),
        "brokers": [asdict(row) for row in facts.brokers],
        "isolations": [asdict(row) for row in facts.isolations],
        "moved": [asdict(row) | {"moved": row.moved} for row in facts.moved],
        "skew": [asdict(row) for row in facts.skew],
        "needless_retries": [asdict(row) for row in facts.needless_retries],
        "reconciliation": None if rows is None else [asdict(row) for row in rows],
        "notes": list(facts.notes),
        "report": None if report is None else str(report),
    }


def _print(facts: "ReportFacts") -> None:
    totals = facts.totals
    print_facts(
        {
            "sends": totals.sends,
            "messages": totals.messages,
            "acknowledged": totals.acknowledged,
            "failed": totals.failed,
            "one-way": totals.oneway,
            "retries": totals.retries,
            "p50 ms": totals.p50_ms,
            "p99 ms": totals.p99_ms,
            "max ms": totals.max_ms,
        }
    )
    _table(
        "brokers",
        ("broker", "attempts", "stored", "failed", "retries", "p50 ms", "p99 ms", "max ms"),
        [
            (
                *(row.broker, row.attempts, row.stored, row.failed, row.retries),
                *(row.p50_ms, row.p99_ms, row.max_ms),
            )
            for row in facts.brokers
        ],
    )
    _table(
        "moved away",
        ("policy", "broker", "even choice", "sent there", "moved", "by isolation"),
        [
            (row.policy, row.broker, row.expected, row.sends, row.moved, row.isolated)
            for row in facts.moved
        ],
    )
    _table(
        "retries that should not have been",
        ("kind", "retries"),
        [(row.kind, row.retries) for row in facts.needless_retries],
    )
    _table(
        "reconciliation",
        ("topic", "sent", "acknowledged", "stored", "lost", "stored twice", "never told"),
        [
            (
                *(row.topic, row.sent, row.acknowledged, row.stored),
                *(row.lost, row.repeated, row.unacknowledged),
            )
            for row in facts.reconciliation or ()
        ],
    )
    _table(
        "ids",
        ("topic", "what", "message id"),
        [
            (row.topic, what, each)
            for row in facts.reconciliation or ()
            for what, ids in (("lost", row.lost_ids), ("stored twice", row.repeated_ids))
            for each in ids
        ],
    )


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if rows:
        print_title(title)
        print_table(columns, rows)


def _settings(args: argparse.Namespace) -> dict[str, str]:
    told = {
        "attempts": args.attempts,
        "trace": args.trace,
        "messages": ", ".join(args.messages or ()),
        "topics": ", ".join(args.topic),
        "since": args.since,
        "until": args.until,
        "Spark master": args.master,
    }
    return {name: str(value) for name, value in told.items() if value not in (None, "")}


def _command(args: argparse.Namespace) -> str:
    """The same again; who we are to the cluster is nobody else's business."""
    words = ["rocketpipe", "audit"]
    for name in ("attempts", "trace", "namesrv", "since", "until", "window", "out"):
        value = getattr(args, name)
        if value is not None:
            words += [f"--{name}", f"{value:g}s" if name == "window" else str(value)]
    for name in ("messages", "topic"):
        for value in getattr(args, name) or ():
            words += [f"--{name}", value]
    return shlex.join([*words, "--sends-only"] if args.sends_only else words)


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of a source folder"
