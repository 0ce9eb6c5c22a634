"""`group`: which consumer groups there are, who is in them, and how far they are."""

import argparse
import asyncio
from typing import Any

from rocketpipe.cli.commands import Commands, add_command, add_confirmation, add_family, confirm
from rocketpipe.cli.output import print_facts, print_json, print_table, print_title, queue_json, say
from rocketpipe.cli.texts import TIME_HELP, moment_ms, queue_name, show_time
from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.client.admin.groups import LATEST_MS
from rocketpipe.client.admin.values import GroupConnections, GroupProgress
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue

SYSTEM_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_SYS_RMQ_TRANS",
    }
)
ASKED_AT_ONCE_MAX = 8  # groups whose progress is asked for


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    family = add_family(commands, "group", "list, show, reset and delete consumer groups")

    listing = add_command(
        family, "list", list_groups, "list the groups and how far behind they are"
    )
    listing.add_argument("--all", action="store_true", help="those of the system too")

    show = add_command(family, "show", show_group, "show a group's members and progress")
    show.add_argument("group")
    show.add_argument("--topic", help="progress with this topic only")

    reset = add_command(
        family,
        "reset",
        reset_group,
        "let a group go on elsewhere",
        more="Its consumers may run meanwhile.",
    )
    reset.add_argument("group")
    add = reset.add_argument
    add("--topic", required=True)
    add("--to", metavar="WHERE", help=f"first, last, or a time: {TIME_HELP}")
    add("--offset", type=int, metavar="N", help="of one queue; give --queue with it")
    add("--queue", type=queue_name, metavar="BROKER:ID")

    delete = add_command(family, "delete", delete_group, "delete a group and how far it was")
    delete.add_argument("group")
    delete.add_argument("--keep-offsets", action="store_true", help="for when it is made anew")
    add_confirmation(delete)


def is_system(group: str) -> bool:
    return group.startswith(SYSTEM_PREFIX) or group in SYSTEM_GROUPS


async def list_groups(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    names = await admin.groups()
    wanted = [name for name in names if args.all or not is_system(name)]
    room = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

    async def ask(group: str) -> tuple[GroupConnections, GroupProgress]:
        async with room:
            return await admin.connections(group), await admin.progress(group)

    told = await asyncio.gather(*map(ask, wanted))
    rows = [
        (
            name,
            len(online.members),
            _short(online.consume_type),
            _short(online.message_model),
            progress.lag,
        )
        for name, (online, progress) in zip(wanted, told, strict=True)
    ]
    columns = ("group", "members", "type", "model", "lag")
    if args.json:
        for row in rows:
            print_json(dict(zip(columns, row, strict=True)))
    elif not rows:
        hidden = f" ({len(names)} of the system: --all shows them)" if names else ""
        say(f"no groups{hidden}")
    else:
        print_table(columns, rows)


def _short(name: str | None) -> str | None:
    """RocketMQ's CONSUME_PASSIVELY as people say it."""
    words = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}
    return words.get(name, name.lower()) if name else None


async def show_group(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    group = args.group
    configs = await admin.group_config(group)
    online = await admin.connections(group)
    progress = await admin.progress(group, topic=args.topic)
    config = next(iter(configs.values()))
    if args.json:
        print_json(_group_json(online, progress, config.retry_max_times))
        return
    print_facts(
        {
            "group": group,
            "lag": progress.lag,
            "members": len(online.members),
            "type": _short(online.consume_type),
            "model": _short(online.message_model),
            "subscriptions": ", ".join(f"{k} ({v})" for k, v in online.subscriptions.items()),
            "retries": config.retry_max_times,
            "may consume": "yes" if config.consume_enable else "no",
            "brokers": ", ".join(configs),
        }
    )
    if online.members:
        print_title("Members")
        print_table(
            ("client id", "address", "language"),
            ((each.client_id, each.address, each.language) for each in online.members),
        )
    if progress.queues:
        print_title("Progress")
        print_table(
            (
                "topic",
                "broker",
                "queue",
                "broker offset",
                "consumer offset",
                "lag",
                "last consumed",
            ),
            (
                (
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    each.broker_offset,
                    each.consumer_offset,
                    each.lag,
                    show_time(each.last_consumed_ms),
                )
                for queue, each in progress.queues.items()
            ),
        )
    else:
        say("it has not consumed anything yet")


def _group_json(
    online: GroupConnections, progress: GroupProgress, retry_max_times: int
) -> dict[str, Any]:
    return {
        "group": online.group,
        "lag": progress.lag,
        "type": _short(online.consume_type),
        "model": _short(online.message_model),
        "retry_max_times": retry_max_times,
        "subscriptions": dict(online.subscriptions),
        "members": [
            {"client_id": each.client_id, "address": each.address, "language": each.language}
            for each in online.members
        ],
        "queues": [
            {
                **queue_json(queue),
                "broker_offset": each.broker_offset,
                "consumer_offset": each.consumer_offset,
                "lag": each.lag,
                "last_consumed_ms": each.last_consumed_ms,
            }
            for queue, each in progress.queues.items()
        ],
    }


async def reset_group(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    if (args.to is None) == (args.offset is None):
        raise InvalidSetting("give either --to, or --offset with --queue")
    if args.offset is not None:
        if args.queue is None:
            raise InvalidSetting("--offset is of one queue: give --queue BROKER:ID")
        queue = args.queue.of(args.topic)
        await admin.reset_offset(args.group, queue, args.offset)
        offsets = {queue: args.offset}
    else:
        if args.queue is not None:
            raise InvalidSetting("--to is for all queues of the topic: leave --queue out")
        offsets = await admin.reset_offsets(args.group, args.topic, _where(args.to))
    _print_offsets(offsets, is_json=args.json)


def _where(text: str) -> int:
    words = {"first": 0, "last": LATEST_MS}
    if text in words:
        return words[text]
    try:
        return moment_ms(text)
    except argparse.ArgumentTypeError as error:
        raise InvalidSetting(f"--to: first, last, or a time; {error}") from None


def _print_offsets(offsets: dict[MessageQueue, int], *, is_json: bool) -> None:
    if is_json:
        for queue, offset in offsets.items():
            print_json({**queue_json(queue), "offset": offset})
    else:
        print_table(
            ("broker", "queue", "goes on at"),
            ((queue.broker_name, queue.queue_id, offset) for queue, offset in offsets.items()),
        )


async def delete_group(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    await admin.group_config(args.group)
    await confirm(args, f"deleting group {args.group!r}")
    await admin.delete_group(args.group, keep_offsets=args.keep_offsets)
    if not args.json:
        say(f"group {args.group!r} is deleted")
