"""`topic` and `route`: which topics there are, what they hold, where they live."""

import argparse
from typing import Any

from rocketpipe.cli.commands import Commands, add_command, add_confirmation, add_family, confirm
from rocketpipe.cli.output import print_facts, print_json, print_table, print_title, queue_json, say
from rocketpipe.cli.texts import count, pair, perm, show_perm, show_time
from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.client.admin.topics import MESSAGE_TYPE
from rocketpipe.client.route import MASTER_ID
from rocketpipe.errors import InvalidSetting

MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED")


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    family = add_family(commands, "topic", "list, show, create, alter and delete topics")

    listing = add_command(family, "list", list_topics, "list the topics")
    listing.add_argument("--all", action="store_true", help="retry, dead letter and system topics")
    listing.add_argument("--cluster", help="only those of this cluster")

    show = add_command(
        family, "show", show_topic, "show a topic's settings, queues and reading groups"
    )
    show.add_argument("topic")

    create = add_command(family, "create", create_topic, "create a topic")
    create.add_argument("topic")
    add = create.add_argument
    add("--queues", type=count, default=8, metavar="N", help="on each broker; 8 by default")
    add("--perm", type=perm, default="rw", help="rw, r or w; rw by default")
    add("--order", action="store_true", help="its queues stay where they are if a broker is down")
    add("--cluster", help="on the brokers of this cluster; by default on all")
    add("--broker", action="append", metavar="NAME", help="on this broker; may be repeated")
    add("--if-missing", action="store_true", help="leave it as it is where it is there already")
    _add_attributes(create)

    alter = add_command(
        family,
        "alter",
        alter_topic,
        "change a topic",
        more="What is not given stays as it is.",
    )
    alter.add_argument("topic")
    add = alter.add_argument
    add("--queues", type=count, metavar="N", help="to read from and to write to")
    add("--read-queues", type=count, metavar="N")
    add("--write-queues", type=count, metavar="N")
    add("--perm", type=perm, help="rw, r or w")
    add("--order", action=argparse.BooleanOptionalAction, default=None)
    add("--broker", action="append", metavar="NAME", help="only on this one; may be repeated")
    add("--remove-attribute", action="append", default=[], metavar="KEY")
    _add_attributes(alter)

    delete = add_command(family, "delete", delete_topic, "delete a topic and all it holds")
    delete.add_argument("topic")
    delete.add_argument("--cluster", help="only there")
    add_confirmation(delete)

    route = add_command(commands, "route", show_route, "show where a topic lives")
    route.add_argument("topic")


def _add_attributes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--type", metavar="TYPE", help=f"of its messages (5.x): {', '.join(MESSAGE_TYPES)}"
    )
    command.add_argument(
        "--attribute",
        action="append",
        default=[],
        type=pair,
        metavar="KEY=VALUE",
        help="of the topic (5.x); may be repeated",
    )


async def list_topics(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    names = await admin.topics(cluster=args.cluster)
    system = await admin.system_topics()
    kinds = {name: _kind(name, name in system) for name in names}
    wanted = {name: kind for name, kind in kinds.items() if args.all or kind == "normal"}
    if args.json:
        for name, kind in wanted.items():
            print_json({"topic": name, "kind": kind})
    elif not wanted:
        hidden = f" ({len(names)} of the system and of groups: --all shows them)" if names else ""
        say(f"no topics{hidden}")
    elif args.all:
        print_table(("topic", "kind"), wanted.items())
    else:
        print_table(("topic",), ((name,) for name in wanted))


def _kind(topic: str, is_system: bool) -> str:
    if topic.startswith("%RETRY%"):
        return "retry"
    if topic.startswith("%DLQ%"):
        return "dead letter"
    return "system" if is_system else "normal"


async def show_topic(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    topic = args.topic
    configs = await admin.topic_config(topic)
    stats = await admin.topic_stats(topic)
    groups = await admin.topic_groups(topic)
    if args.json:
        print_json(
            {
                "topic": topic,
                "messages": stats.message_count,
                "brokers": [
                    {
                        "broker": broker,
                        "read_queues": config.read_queue_nums,
                        "write_queues": config.write_queue_nums,
                        "perm": show_perm(config.perm),
                        "order": config.order,
                        "attributes": config.attributes,
                    }
                    for broker, config in configs.items()
                ],
                "queues": [
                    {
                        **queue_json(queue),
                        "min_offset": each.min_offset,
                        "max_offset": each.max_offset,
                        "last_update_ms": each.last_update_ms,
                    }
                    for queue, each in stats.queues.items()
                ],
                "groups": list(groups),
            }
        )
        return
    print_facts({"topic": topic, "messages": stats.message_count, "groups": ", ".join(groups)})
    print_title("On each broker")
    print_table(
        ("broker", "read queues", "write queues", "perm", "order", "message type"),
        (
            (
                broker,
                config.read_queue_nums,
                config.write_queue_nums,
                show_perm(config.perm),
                "yes" if config.order else "no",
                config.attributes.get(MESSAGE_TYPE),
            )
            for broker, config in configs.items()
        ),
    )
    print_title("Queues")
    print_table(
        ("broker", "queue", "min offset", "max offset", "messages", "last stored"),
        (
            (
                queue.broker_name,
                queue.queue_id,
                each.min_offset,
                each.max_offset,
                each.message_count,
                show_time(each.last_update_ms),
            )
            for queue, each in stats.queues.items()
        ),
    )


async def create_topic(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    if args.cluster and args.broker:
        raise InvalidSetting("give --cluster or --broker, not both")
    await admin.create_topic(
        args.topic,
        queues=args.queues,
        perm=args.perm,
        order=args.order,
        message_type=args.type,
        attributes=dict(args.attribute),
        cluster=args.cluster,
        brokers=args.broker,
        exist_ok=args.if_missing,
    )
    await show_route(admin, args)


async def alter_topic(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    attributes: dict[str, str | None] = dict(args.attribute)
    attributes |= dict.fromkeys(args.remove_attribute)
    changes: dict[str, Any] = {
        "read_queues": args.read_queues or args.queues,
        "write_queues": args.write_queues or args.queues,
        "perm": args.perm,
        "order": args.order,
        "message_type": args.type,
        "attributes": attributes or None,
    }
    if all(change is None for change in changes.values()):
        raise InvalidSetting("nothing to change: see rocketpipe topic alter --help")
    await admin.alter_topic(args.topic, **changes, brokers=args.broker)
    await show_route(admin, args)


async def delete_topic(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    await admin.route(args.topic)
    await confirm(args, f"deleting topic {args.topic!r}")
    await admin.delete_topic(args.topic, cluster=args.cluster)
    if not args.json:
        say(f"topic {args.topic!r} is deleted")


async def show_route(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    route = await admin.route(args.topic)
    queues = {each.broker_name: each for each in route.data.queue_datas}
    rows = [
        (
            name,
            route.clusters.get(name),
            "master" if broker_id == MASTER_ID else f"slave {broker_id}",
            str(address),
            queues[name].read_queue_nums,
            queues[name].write_queue_nums,
            show_perm(queues[name].perm),
        )
        for name, addresses in sorted(route.brokers.items())
        if name in queues
        for broker_id, address in sorted(addresses.items())
    ]
    if args.json:
        names = ("broker", "cluster", "role", "address", "read_queues", "write_queues", "perm")
        for row in rows:
            print_json({"topic": args.topic, **dict(zip(names, row, strict=True))})
        return
    print_table(
        ("broker", "cluster", "role", "address", "read queues", "write queues", "perm"), rows
    )
    if route.data.order_topic_conf:
        say(f"ordered: {route.data.order_topic_conf}")
