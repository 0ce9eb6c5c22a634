"""`message`: single messages, by id, by place or by key."""

import argparse

from rocketpipe.cli.commands import Commands, add_command, add_family
from rocketpipe.cli.output import message_json, print_json, print_message, print_table, say
from rocketpipe.cli.texts import (
    TIME_HELP,
    count,
    moment_ms,
    queue_name,
    show_body,
    show_queue,
    show_time,
)
from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.errors import InvalidSetting

BODY_CHARACTERS_MAX = 60  # of a body in a table


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    family = add_family(commands, "message", "show and find messages")

    show = add_command(
        family,
        "show",
        show_message,
        "show a message",
        more="By its id, or by --topic, --queue and --offset.",
    )
    show.add_argument("id", nargs="?", help="its producer's, with --topic, or that of its place")
    add = show.add_argument
    add("--topic", help="where to look for a producer's id")
    add("--queue", type=queue_name, metavar="BROKER:ID")
    add("--offset", type=int, metavar="N")

    find = add_command(family, "find", find_messages, "find messages by their key")
    find.add_argument("topic")
    add = find.add_argument
    add("--key", required=True)
    add("--since", type=moment_ms, default=0, metavar="TIME", help=TIME_HELP)
    add("--until", type=moment_ms, metavar="TIME", help=TIME_HELP)
    add("--limit", type=count, default=32, metavar="N", help="the newest; 32 by default")


async def show_message(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    by_place = (args.queue, args.offset)
    if (args.id is None) == (by_place == (None, None)):
        raise InvalidSetting("give either an id, or --topic, --queue and --offset")
    if args.id is not None:
        message = await admin.message(args.id, topic=args.topic)
    elif None in by_place or args.topic is None:
        raise InvalidSetting("a place is given by --topic, --queue and --offset together")
    else:
        message = await admin.message_at(args.queue.of(args.topic), args.offset)
    if args.json:
        print_json(message_json(message))
    else:
        print_message(message)


async def find_messages(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    found = await admin.query(
        args.topic, args.key, begin_ms=args.since, end_ms=args.until, limit=args.limit
    )
    if args.json:
        for message in found:
            print_json(message_json(message))
    elif not found:
        say(f"no message with key {args.key!r} in topic {args.topic!r}")
    else:
        print_table(
            ("message id", "stored", "queue", "offset", "tags", "body"),
            (
                (
                    message.message_id,
                    show_time(message.store_timestamp_ms),
                    show_queue(message.queue),
                    message.queue_offset,
                    message.tags,
                    _shortened(show_body(message.body)),
                )
                for message in found
            ),
        )


def _shortened(text: str) -> str:
    return text if len(text) <= BODY_CHARACTERS_MAX else f"{text[: BODY_CHARACTERS_MAX - 1]}…"
