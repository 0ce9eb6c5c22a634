"""`archive`: topics to a table of Parquet files."""

import argparse

from rocketpipe.cli.commands import Commands
from rocketpipe.cli.jobs import (
    add_filters,
    filter_options,
    job_options,
    job_session,
    require_spark,
    source_options,
    stop_at_ctrl_c,
    text_or_file,
)
from rocketpipe.cli.output import print_facts, print_json
from rocketpipe.cli.progress_bar import progress_bar
from rocketpipe.cli.texts import TIME_HELP, count, moment_ms, seconds, size


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "archive",
        help="keep topics as a table of Parquet files",
        description="Read topics with Spark into a folder of Parquet files, partitioned by topic "
        "and date, each message once, until Ctrl-C. The same command goes on where it was.",
        parents=[job_options()],
    )
    command.add_argument("table", help="the folder, or any URI that Spark can write to")
    add = command.add_argument
    which = command.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topic", action="append", metavar="NAME", help="may be given several times"
    )
    which.add_argument("--pattern", metavar="REGEX", help="all topics with such a name")
    add("--format", choices=("parquet", "delta"), default="parquet", help="parquet by default")
    add("--once", action="store_true", help="end when all is read that is there now")
    add(
        "--as",
        dest="body",
        choices=("binary", "text", "json", "avro"),
        default="binary",
        help="what bodies are; binary by default. Those that are not go to quarantine",
    )
    add(
        "--schema",
        metavar="TEXT",
        help="of JSON, such as 'id BIGINT, name STRING', or Spark's JSON; inferred from the first "
        "messages by default. Of Avro, its schema. @FILE reads it from a file",
    )
    add("--keep-body", action="store_true", help="keep the body beside what was made of it")
    add(
        "--from",
        dest="start",
        type=_start,
        default="first",
        metavar="WHERE",
        help=f"where a new table begins: first, last, or a time: {TIME_HELP}; first by default",
    )
    add_filters(command)
    add("--interval", type=seconds, default=1.0, metavar="TIME", help="between batches; 1s")
    add("--batch-rows", type=count, default=200_000, metavar="N", help="rows of a batch; 200000")
    add(
        "--file-size",
        type=size,
        default=128 << 20,
        metavar="SIZE",
        help="a file is published when it is as large, 128MB by default,",
    )
    add("--file-age", type=seconds, default=600.0, metavar="TIME", help="or as old; 10m by default")
    command.set_defaults(run=run)


def _start(text: str) -> str | int:
    return text if text in ("first", "last") else moment_ms(text)


def run(args: argparse.Namespace) -> None:
    source = {**source_options(args), **filter_options(args)}
    if args.pattern:
        source["topicPattern"] = args.pattern
    else:
        source["topic"] = ",".join(args.topic)
    if isinstance(args.start, int):
        source["startingTimestamp"] = str(args.start)
        source["startingOffsetsByTimestampStrategy"] = "latest"
    else:
        source["startingOffsets"] = {"first": "earliest", "last": "latest"}[args.start]
    require_spark(args)
    from rocketpipe.spark.jobs.archive import ArchiveSettings, archive

    settings = ArchiveSettings(
        source=source,
        table=args.table,
        format=args.format,
        body=args.body,
        schema=text_or_file(args.schema),
        keep_body=args.keep_body,
        once=args.once,
        interval=args.interval,
        rows_per_batch=args.batch_rows,
        file_bytes=args.file_size,
        file_age=args.file_age,
    )
    with (
        progress_bar("archive", is_shown=not args.json) as tell,
        job_session(args, "archive") as spark,
        stop_at_ctrl_c() as stop,
    ):
        report = archive(spark, settings, tell, stop=stop)
    facts = {
        "table": report.table,
        "archived": report.archived,
        "quarantined": report.quarantined,
        "files": report.files,
        "lag": report.lag,
        "seconds": round(report.seconds, 1),
        "archived in all": report.archived_in_all,
        "quarantined in all": report.quarantined_in_all,
    }
    if report.quarantined_in_all:
        facts["quarantine"] = report.quarantine
    if args.json:
        print_json({name.replace(" ", "_"): value for name, value in facts.items()})
    else:
        print_facts(facts)
    if stop.is_set():
        raise KeyboardInterrupt
