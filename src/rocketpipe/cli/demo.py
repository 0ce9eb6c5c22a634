"""`demo`: a shop's messages through failing brokers and Spark, with a report of where they went."""

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rocketpipe.cli.connecting import client_settings
from rocketpipe.cli.jobs import job_options, source_options
from rocketpipe.cli.output import print_facts, print_json, print_table, say
from rocketpipe.cli.texts import seconds
from rocketpipe.client.queue_choice import POLICIES
from rocketpipe.demo.scenario import SCENARIOS
from rocketpipe.demo.settings import DemoSettings
from rocketpipe.demo.view import Lines, Picture, View, show_latency
from rocketpipe.errors import JobError

if TYPE_CHECKING:
    from rocketpipe.demo.clusters import Subject
    from rocketpipe.demo.demo import DemoResult
    from rocketpipe.demo.troubles import Sufferer

DEFAULT_FOLDER = Path("out") / "demo"
# What the demo needs beside the package, and the extra that has it.
NEEDED = {"pyspark": "spark", "pyarrow": "spark", "rich": "cli"}
# Options of all jobs that have another default here.
HELP = {
    "namesrv": "host:port;... of a cluster of yours; without it, one of the demo's own",
    "master": "where Spark runs; local[2] by default",
}


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    scenarios = "; ".join(f"{each.name}: {each.summary}" for each in SCENARIOS.values())
    shared = job_options()
    for option in shared._actions:
        option.help = HELP.get(option.dest, option.help)
    demo = commands.add_parser(
        "demo",
        help="see it work: a load through failing brokers, Spark, and a report",
        description="Send a shop's messages through brokers that fail, stream them and all "
        "attempts at sending into tables with Spark, and prove that nothing was lost. It takes "
        "two minutes, on a cluster of its own unless --namesrv names another. "
        f"Scenarios: {scenarios}.",
        parents=[shared],
    )
    add = demo.add_argument_group("the demo").add_argument
    add("--policy", choices=[*POLICIES], default="java5", help="how queues are chosen; java5")
    add("--scenario", choices=[*SCENARIOS], default="all", help="what goes wrong; all")
    add("--compare", action="store_true", help="run it under each policy, one after another")
    add("--seconds", type=seconds, default=70.0, metavar="TIME", help="how long to send; 70s")
    add("--rate", type=float, default=400.0, metavar="N", help="messages a second; 400")
    add("--seed", type=int, default=1, metavar="N", help="for other messages; 1")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"where all results go, a new or empty folder; a new one in {DEFAULT_FOLDER}",
    )
    demo.set_defaults(run=run, master="local[2]")


def run(args: argparse.Namespace, sufferer: "Sufferer | None" = None) -> bool:
    """Do it; with a sufferer, what it can suffer is done to the cluster that --namesrv names."""
    _require_libraries()
    settings = DemoSettings(
        folder=args.out or _new_folder(DEFAULT_FOLDER),
        policy=args.policy,
        scenario=args.scenario,
        seconds=args.seconds,
        rate=args.rate,
        seed=args.seed,
        compare=args.compare,
        source=source_options(args) if args.namesrv else {},
        master=args.master,
        conf=dict(args.conf),
    )
    settings.make_folder()
    from rocketpipe.demo.demo import Demo

    with _log_to(settings.folder / "demo.log"), _view() as view:
        runs = f"{len(POLICIES)} runs" if settings.compare else "a run"
        view.say(f"{runs} of {settings.seconds:g} s; all results go to {settings.folder}")
        result = Demo(settings, partial(_cluster, args, settings, sufferer), view).run()
    print_result(result, is_json=args.json)
    return not result.problems


def print_result(result: "DemoResult", *, is_json: bool) -> None:
    summaries = [run.summary() for run in result.runs]
    if is_json:
        runs = {"runs": summaries, "problems": result.problems, "report": str(result.report)}
        print_json(runs if len(summaries) > 1 else {**summaries[0], **runs})
        return
    if len(summaries) > 1:
        columns = ("policy", "sent", "acknowledged", "stored", "lost", "repeated", "retried")
        late = ("p50_ms", "p99_ms", "free_p99_ms", "bound_p99_ms")
        rows = [
            (*(each[name] for name in columns), *(_latency(each[name]) for name in late))
            for each in summaries
        ]
        print_table((*columns, "p50", "p99", "p99 any queue", "p99 bound"), rows)
        print_facts({"report": result.report})
    else:
        (only,) = summaries
        print_facts(
            {
                "sent": f"{only['sent']:,}: {only['free_sent']:,} to any queue, "
                f"{only['free_failed']:,} failed; {only['bound_sent']:,} bound to one queue, "
                f"{only['bound_resent']:,} of them sent again by the shop",
                "acknowledged": f"{only['acknowledged']:,}",
                "stored": f"{only['stored']:,}: {only['unacknowledged']:,} without the sender "
                "having been told",
                "lost": f"{only['lost']:,}",
                "repeated": f"{only['repeated']:,}",
                "p50, p99": f"{_latency(only['p50_ms'])}, {_latency(only['p99_ms'])}",
                "report": result.report,
            }
        )
    for problem in result.problems:
        say(f"rocketpipe: {problem}")


def _latency(ms: float | None) -> str:
    return show_latency(None if ms is None else ms / 1000)


def _require_libraries() -> None:
    missing = sorted({extra for name, extra in NEEDED.items() if find_spec(name) is None})
    if missing:
        raise JobError(f"the demo needs more: pip install 'rocketpipe[{','.join(missing)}]'")


def _new_folder(within: Path) -> Path:
    name = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    folder, number = within / name, 1
    while folder.exists():
        number += 1
        folder = within / f"{name}-{number}"
    return folder


def _cluster(
    args: argparse.Namespace, settings: DemoSettings, sufferer: "Sufferer | None", folder: Path
) -> AbstractContextManager["Subject"]:
    from rocketpipe.demo.clusters import embedded, given

    if not settings.source:
        return embedded(folder)
    name = f"rocketpipe-demo-{datetime.now(UTC):%Y%m%d%H%M%S}-{os.getpid()}"
    return given(client_settings(args), settings.source, name, sufferer)


@contextmanager
def _view() -> Iterator[View]:
    # A copy of stderr: while Java starts, the original is away.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as stderr:
        if not stderr.isatty():
            yield Lines(stderr)
            return
        from rich.console import Console

        with Picture(Console(file=stderr, highlight=False)) as picture:
            yield picture


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """What is logged meanwhile goes to a file: it would tear the picture."""
    root = logging.getLogger()
    file = logging.FileHandler(path, delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger("py4j").setLevel(logging.WARNING)  # every call into Java, otherwise
    before, root.handlers = root.handlers, [file]
    try:
        yield
    finally:
        root.handlers = before
        file.close()
