"""`replay`: stored messages sent again."""

import argparse

from rocketpipe.cli.commands import Commands
from rocketpipe.cli.jobs import (
    add_filters,
    filter_options,
    finish,
    job_options,
    job_session,
    print_sent,
    require_spark,
    sent_json,
    source_options,
    stop_at_ctrl_c,
)
from rocketpipe.cli.output import print_facts, print_json
from rocketpipe.cli.progress_bar import progress_bar
from rocketpipe.cli.texts import TIME_HELP, moment_ms, rate
from rocketpipe.errors import InvalidSetting


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "replay",
        help="send stored messages again",
        description="Send messages of a topic again, marked in their properties, so that the same "
        "command sends no message twice. Dead letters (%DLQ%GROUP) go to the topics they came "
        "from.",
        parents=[job_options()],
    )
    command.add_argument("topic", help="where the messages are: a topic, or %%DLQ%%GROUP")
    add = command.add_argument
    add("--to", metavar="TOPIC", help="where to send them; dead letters know their own")
    add("--from", dest="start", type=moment_ms, metavar="TIME", help=f"stored since: {TIME_HELP}")
    add("--until", type=moment_ms, metavar="TIME", help="and before")
    add_filters(command)
    add("--id", dest="replay_id", metavar="NAME", help="another name repeats what was replayed")
    add("--rate", type=rate, metavar="N", help="not more messages a second than that")
    add("--dry-run", action="store_true", help="say what would be sent, and send nothing")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> bool:
    target = source_options(args)
    source = {**target, **filter_options(args), "topic": args.topic}
    if args.start is not None:
        source["startingTimestamp"] = str(args.start)
        source["startingOffsetsByTimestampStrategy"] = "latest"
    if args.until is not None:
        if args.start is not None and args.until <= args.start:
            raise InvalidSetting("--until is not after --from")
        source["endingTimestamp"] = str(args.until)
    require_spark(args)
    from rocketpipe.spark.jobs.replay import ReplaySettings, replay

    settings = ReplaySettings(
        source=source,
        target=target,
        to=args.to,
        replay_id=args.replay_id,
        rate=args.rate,
        dry_run=args.dry_run,
    )
    with (
        progress_bar("replay", is_shown=not args.json) as tell,
        job_session(args, "replay") as spark,
        stop_at_ctrl_c() as stop,
    ):
        report = replay(spark, settings, tell, stop=stop)
    facts = {
        "replay_id": report.replay_id,
        "dry_run": report.dry_run,
        "stopped": report.stopped,
        "selected": report.selected,
        "replayed_before": report.already,
        "seconds": round(report.seconds, 1),
    }
    if args.json:
        print_json({**facts, "targets": dict(report.targets), **sent_json(report.sent)})
    else:
        print_facts({name.replace("_", " "): value for name, value in facts.items()})
        print_sent(report.sent, is_dry=report.dry_run)
    return finish(report.sent, is_stopped=report.stopped, go_on="the same command goes on")
