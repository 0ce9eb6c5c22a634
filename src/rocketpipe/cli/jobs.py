"""What all Spark jobs share on the command line: options, their session, progress, and Ctrl-C."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any

from rocketpipe.cli.connecting import cluster_options, credentials
from rocketpipe.cli.output import (
    print_facts,
    print_table,
    print_text,
    print_title,
    require_rich,
    say,
)
from rocketpipe.cli.texts import pair
from rocketpipe.client.settings import NAMESRV_VARIABLE
from rocketpipe.errors import InvalidSetting, JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketpipe.spark.jobs.row_sending import Sent

DEFAULT_NAMESRV = "127.0.0.1:9876"  # where `rocketpipe serve` listens
DEFAULT_MASTER = "local[*]"


def job_options() -> argparse.ArgumentParser:
    """What each job has: the options of a cluster, and those of Spark."""
    options = argparse.ArgumentParser(add_help=False, parents=[cluster_options()])
    add = options.add_argument_group("Spark").add_argument
    add(
        "--master",
        default=DEFAULT_MASTER,
        metavar="URL",
        help=f"where to run: local[N], spark://HOST:PORT, ...; {DEFAULT_MASTER} by default",
    )
    add(
        "--conf",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given several times",
    )
    return options


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """How to reach the cluster, as options of `format("rocketmq")`."""
    namesrv = args.namesrv or os.environ.get(NAMESRV_VARIABLE) or DEFAULT_NAMESRV
    options = {"namesrv": namesrv, "requestTimeout": f"{round(args.timeout * 1000)}ms"}
    known = credentials(args.credentials)
    if known is not None:
        options |= {"accessKey": known.access_key, "secretKey": known.secret_key}
        if known.security_token is not None:
            options["securityToken"] = known.security_token
    if args.tls or args.tls_ca:
        options["tls"] = "true"
    if args.tls_ca:
        options["tlsCaFile"] = args.tls_ca
    return options


def add_filters(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--tag", metavar="EXPRESSION", help="only messages with such a tag: 'paid || refunded'")
    add("--sql", metavar="EXPRESSION", help="only messages with such properties: 'amount > 100'")


def filter_options(args: argparse.Namespace) -> dict[str, str]:
    filters = {"tags": args.tag, "sql": args.sql}
    return {name: value for name, value in filters.items() if value is not None}


def require_spark(args: argparse.Namespace) -> None:
    """JobError where jobs can't run, before anything of theirs is imported."""
    if not args.json:
        require_rich()
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise JobError(f"jobs run on Spark: pip install 'rocketpipe[spark]' ({error})") from None


@contextmanager
def job_session(args: argparse.Namespace, name: str) -> "Iterator[SparkSession]":
    """A session for a command, stopped at its end; Spark's errors become one line each."""
    require_spark(args)
    from rocketpipe.spark.jobs.failures import one_line_errors
    from rocketpipe.spark.jobs.session import spark_session

    session = spark_session(
        f"rocketpipe {name}", master=args.master, conf=dict(args.conf), quiet=not args.debug
    )
    try:
        with one_line_errors():
            yield session
    finally:
        _stop(session)


def _stop(session: "SparkSession") -> None:
    try:
        session.stop()
    except Exception:  # Java is gone already; the reason was told
        pass


@contextmanager
def stop_at_ctrl_c() -> Iterator[Event]:
    """An event that the first Ctrl-C sets, so that work ends where it can go on later.

    A second one interrupts, as always.
    """
    wanted = Event()
    before = signal.getsignal(signal.SIGINT)

    def on_signal(number: int, frame: FrameType | None) -> Any:
        if wanted.is_set():
            raise KeyboardInterrupt
        wanted.set()
        print("stopping; Ctrl-C again to end at once", file=sys.stderr)

    # Spark's own handler, which it sets when a session starts, would cancel all jobs.
    signal.signal(signal.SIGINT, on_signal)
    try:
        yield wanted
    finally:
        signal.signal(signal.SIGINT, before)


def text_or_file(text: str | None) -> str | None:
    """What was typed, or what stands in the file named behind an @."""
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"{text[1:]} can't be read: {error}") from None


# What was sent.


def sent_json(sent: "Sent") -> dict[str, Any]:
    return {
        "rows": sent.rows,
        "bytes": sent.bytes,
        "skipped": sent.skipped,
        "requests": sent.requests,
        "retries": sent.retries,
        "bad": sent.bad,
        "bad_rows": list(sent.bad_rows),
        "queues": [
            {"topic": topic, "broker": broker, "queue": queue, "rows": rows}
            for (topic, broker, queue), rows in sorted(sent.queues.items())
        ],
    }


def print_sent(sent: "Sent", *, is_dry: bool) -> None:
    """How much, and where it is now."""
    facts: dict[str, object] = {"rows": sent.rows, "bytes": sent.bytes}
    if sent.skipped:
        facts["sent before"] = sent.skipped
    if is_dry:
        facts["bad"] = sent.bad
    else:
        facts |= {"requests": sent.requests, "retries": sent.retries}
    print_facts(facts)
    if sent.queues:
        print_title("sent to")
        print_table(
            ("topic", "broker", "queue", "rows"),
            [(*queue, rows) for queue, rows in sorted(sent.queues.items())],
        )
    if sent.bad_rows:
        print_title("can't be sent")
        for row in sent.bad_rows:
            print_text(row)
        if sent.bad > len(sent.bad_rows):
            print_text(f"... and {sent.bad - len(sent.bad_rows)} more")


def finish(sent: "Sent", *, is_stopped: bool, go_on: str) -> bool:
    """Whether all is well; KeyboardInterrupt if Ctrl-C ended it before its end."""
    if is_stopped:
        say(f"stopped; {go_on}")
        raise KeyboardInterrupt
    return not sent.bad
