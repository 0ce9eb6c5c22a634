"""`offsets`: where the queues of a topic begin and end, and where in them a moment is."""

import argparse
import asyncio
from typing import NamedTuple

from rocketpipe.cli.commands import Commands, add_command
from rocketpipe.cli.output import print_json, print_table, queue_json
from rocketpipe.cli.texts import TIME_HELP, moment_ms, show_time
from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.message import MessageQueue


class _Row(NamedTuple):
    queue: MessageQueue
    min_offset: int
    max_offset: int
    earliest_ms: int | None
    at: int | None
    consumed: int | None


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    offsets = add_command(commands, "offsets", show_offsets, "show the offsets of a topic's queues")
    offsets.add_argument("topic")
    add = offsets.add_argument
    add(
        "--at", type=moment_ms, metavar="TIME", help=f"also of the first message since: {TIME_HELP}"
    )
    add("--group", help="also how far this group is")


async def show_offsets(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    async def ask(queue: MessageQueue) -> _Row:
        return _Row(
            queue,
            await admin.min_offset(queue),
            await admin.max_offset(queue),
            await admin.earliest_store_time(queue),
            None if args.at is None else await admin.search_offset(queue, args.at),
            None if args.group is None else await admin.consumer_offset(args.group, queue),
        )

    rows = await asyncio.gather(*map(ask, await admin.subscribe_queues(args.topic)))
    if args.json:
        for row in rows:
            print_json(
                {
                    **queue_json(row.queue),
                    "min_offset": row.min_offset,
                    "max_offset": row.max_offset,
                    "earliest_ms": row.earliest_ms,
                    **({} if args.at is None else {"at_offset": row.at}),
                    **({} if args.group is None else {"consumer_offset": row.consumed}),
                }
            )
        return
    columns = ["broker", "queue", "min offset", "max offset", "messages", "oldest stored"]
    columns += [] if args.at is None else ["offset then"]
    columns += [] if args.group is None else ["group offset"]
    print_table(
        columns,
        (
            (
                row.queue.broker_name,
                row.queue.queue_id,
                row.min_offset,
                row.max_offset,
                row.max_offset - row.min_offset,
                show_time(row.earliest_ms),
                *([] if args.at is None else [row.at]),
                *([] if args.group is None else [row.consumed]),
            )
            for row in rows
        ),
    )
