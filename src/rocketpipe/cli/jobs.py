"""What all Spark jobs share on the command line: options, their session, progress, and Ctrl-C."""

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any

from rocketpipe.cli.connecting import cluster_options, credentials
from rocketpipe.cli.output import require_rich
from rocketpipe.cli.texts import pair
from rocketpipe.client.settings import NAMESRV_VARIABLE
from rocketpipe.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@contextmanager
def job_session(args: argparse.Namespace, name: str) -> "Iterator[SparkSession]":
    """A session for a command, stopped at its end; Spark's errors become one line each."""
    if not args.json:
        require_rich()
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise JobError(f"jobs run on Spark: pip install 'rocketpipe[spark]' ({error})") from None
    from rocketpipe.spark.jobs.failures import job_error
    from rocketpipe.spark.jobs.session import spark_session

    session = spark_session(
        f"rocketpipe {name}", master=args.master, conf=dict(args.conf), quiet=not args.debug
    )
    try:
        yield session
    except Exception as error:
        if type(error).__module__.startswith(("pyspark", "py4j")):
            raise job_error(error) from error
        raise
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
