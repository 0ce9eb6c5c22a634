"""`publish`: rows of files to a topic."""

import argparse

from rocketpipe.cli.commands import Commands
from rocketpipe.cli.jobs import (
    finish,
    job_options,
    job_session,
    print_sent,
    require_spark,
    sent_json,
    source_options,
    stop_at_ctrl_c,
    text_or_file,
)
from rocketpipe.cli.output import print_facts, print_json
from rocketpipe.cli.progress_bar import progress_bar
from rocketpipe.cli.texts import pair, rate


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "publish",
        help="send the rows of Parquet, CSV or JSON files",
        description="Send each row of some files to a topic, once: the same job id goes on where "
        "an earlier run ended. By default a message's body is its row as JSON.",
        parents=[job_options()],
    )
    command.add_argument("topic")
    command.add_argument("files", nargs="+", metavar="file", help="files, folders or patterns")
    add = command.add_argument
    add("--format", choices=("parquet", "csv", "json"), help="by default as the names end")
    add("--schema", metavar="DDL", help="of CSV or JSON; @FILE reads it from a file")
    add(
        "--read-option",
        type=pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of Spark's reader, such as sep=;",
    )
    add("--body", metavar="COLUMN", help="the body; by default the whole row as JSON")
    add("--key", metavar="COLUMN", action="append", default=[], help="may be given several times")
    add("--tag", metavar="COLUMN")
    add(
        "--property",
        type=pair,
        action="append",
        default=[],
        metavar="NAME=COLUMN",
        help="may be given several times",
    )
    add("--sharding-key", metavar="COLUMN", help="the same value goes to the same queue")
    add("--delay-level", metavar="COLUMN", help="1 to 18, as brokers define them")
    add("--deliver-at", metavar="COLUMN", help="a time; brokers of 5.x")
    add("--rate", type=rate, metavar="N", help="not more rows a second than that")
    add("--dry-run", action="store_true", help="check every row, and send nothing")
    add("--job-id", metavar="NAME", help="go on with this job, or give a new one this name")
    add(
        "--state",
        metavar="DIR",
        help="where jobs note what is done; by default ~/.local/state/rocketpipe/publish",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> bool:
    target = {**source_options(args), "topic": args.topic}
    require_spark(args)
    from rocketpipe.spark.jobs.publish import PublishSettings, publish

    settings = PublishSettings(
        target=target,
        files=tuple(args.files),
        format=args.format,
        schema=text_or_file(args.schema),
        reading=dict(args.read_option),
        body=args.body,
        keys=tuple(args.key),
        tag=args.tag,
        properties=dict(args.property),
        sharding_key=args.sharding_key,
        delay_level=args.delay_level,
        deliver_at=args.deliver_at,
        rate=args.rate,
        dry_run=args.dry_run,
        job_id=args.job_id,
        state=args.state,
    )
    with (
        progress_bar("publish", is_shown=not args.json) as tell,
        job_session(args, "publish") as spark,
        stop_at_ctrl_c() as stop,
    ):
        report = publish(spark, settings, tell, stop=stop)
    facts = {
        "topic": report.topic,
        "job_id": report.job_id,
        "dry_run": report.dry_run,
        "stopped": report.stopped,
        "seconds": round(report.seconds, 1),
    }
    if args.json:
        print_json({**facts, **sent_json(report.sent)})
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
        print_sent(report.sent, is_dry=report.dry_run)
    return finish(
        report.sent,
        is_stopped=report.stopped,
        go_on=f"the same command with --job-id {report.job_id} goes on",
    )
