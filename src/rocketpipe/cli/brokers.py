"""`broker` and `cluster`: which servers there are, how they are doing, and their settings."""

import argparse
import asyncio
from typing import NamedTuple

from rocketpipe.cli.commands import Commands, add_command, add_family
from rocketpipe.cli.output import print_facts, print_json, print_table, say
from rocketpipe.cli.texts import pair, show_time
from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.client.admin.values import MASTER_ID, BrokerRuntime
from rocketpipe.errors import MQError


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    family = add_family(commands, "broker", "list and show brokers, and change their settings")

    listing = add_command(family, "list", list_brokers, "list the brokers and how they are doing")
    listing.add_argument("--cluster", help="only those of this cluster")

    show = add_command(family, "show", show_broker, "show all that a broker tells of itself")
    show.add_argument("broker", help="its name, or host:port")

    config = add_command(family, "config", show_config, "show or change a broker's settings")
    config.add_argument("broker", help="its name, or host:port")
    config.add_argument("--filter", metavar="TEXT", help="only settings whose names have this")
    config.add_argument(
        "--set",
        action="append",
        default=[],
        type=pair,
        metavar="KEY=VALUE",
        dest="changes",
        help="change this one first; may be repeated",
    )

    add_command(commands, "cluster", show_clusters, "show the clusters and how they are doing")


class _Member(NamedTuple):
    cluster: str
    name: str
    broker_id: int
    address: str
    told: BrokerRuntime | MQError

    @property
    def role(self) -> str:
        return "master" if self.broker_id == MASTER_ID else f"slave {self.broker_id}"


async def _members(admin: AsyncAdmin, cluster: str | None) -> list[_Member]:
    """Every master and slave, with what it tells or why it does not."""

    async def ask(cluster: str, name: str, broker_id: int, address: str) -> _Member:
        told: BrokerRuntime | MQError
        try:
            told = await admin.broker_runtime(address)
        except MQError as error:
            told = error
        return _Member(cluster, name, broker_id, address, told)

    return await asyncio.gather(
        *(
            ask(broker.cluster or "", broker.name, broker_id, address)
            for broker in await admin.brokers(cluster=cluster)
            for broker_id, address in broker.addresses.items()
        )
    )


def _complain(members: list[_Member]) -> bool:
    """Whether all answered; of each that did not, a line."""
    failed = [each for each in members if isinstance(each.told, MQError)]
    for each in failed:
        say(f"rocketpipe: {each.name} ({each.role}): {each.told}")
    return not failed


async def list_brokers(admin: AsyncAdmin, args: argparse.Namespace) -> bool:
    members = await _members(admin, args.cluster)
    if args.json:
        for each in members:
            print_json(_member_json(each))
    elif not members:
        say("no brokers: none has registered with the NameServer")
    else:
        print_table(
            ("broker", "cluster", "role", "address", "version", "in/s", "out/s", "disk"),
            map(_row, members),
        )
    return _complain(members)


def _row(member: _Member) -> tuple[object, ...]:
    who = (member.name, member.cluster, member.role, member.address)
    told = member.told
    if isinstance(told, MQError):
        return *who, "unreachable", None, None, None
    return *who, told.version, told.put_tps, told.get_tps, f"{told.disk_used_ratio:.0%}"


def _member_json(member: _Member) -> dict[str, object]:
    who = {
        "broker": member.name,
        "cluster": member.cluster,
        "id": member.broker_id,
        "address": member.address,
    }
    told = member.told
    if isinstance(told, MQError):
        return {**who, "error": str(told)}
    return {
        **who,
        "version": told.version,
        "put_tps": told.put_tps,
        "get_tps": told.get_tps,
        "put_today": told.put_today,
        "get_today": told.get_today,
        "disk_used_ratio": told.disk_used_ratio,
        "boot_ms": told.boot_timestamp_ms,
        "earliest_message_ms": told.earliest_message_ms,
    }


async def show_broker(admin: AsyncAdmin, args: argparse.Namespace) -> None:
    told = await admin.broker_runtime(args.broker)
    if args.json:
        print_json({"broker": args.broker, **dict(sorted(told.table.items()))})
        return
    print_facts(
        {
            "broker": args.broker,
            "version": told.version,
            "started": show_time(told.boot_timestamp_ms),
            "oldest message": show_time(told.earliest_message_ms),
            "disk used": f"{told.disk_used_ratio:.0%}",
            "messages today": f"{told.put_today:,} in, {told.get_today:,} out",
        }
    )
    print()
    print_facts(dict(sorted(told.table.items())))


async def show_config(admin: AsyncAdmin, args: argparse.Namespace) -> bool:
    changes = dict(args.changes)
    if changes:
        await admin.change_broker_config(args.broker, changes)
    found = await admin.broker_config(args.broker)
    wanted = (args.filter or "").lower()
    settings = {
        name: value
        for name, value in found.items()
        if (not changes or name in changes) and wanted in name.lower()
    }
    if args.json:
        print_json({"broker": args.broker, "settings": settings})
    elif settings:
        print_facts(settings)
    elif not changes:
        say(f"no setting of {args.broker} has {args.filter!r} in its name")
    return _complain_of_settings(args.broker, changes, found)


def _complain_of_settings(broker: str, asked: dict[str, str], found: dict[str, str]) -> bool:
    """Whether all are as asked: brokers say nothing of what they do not know or understand."""
    wrong = [
        f"{broker} has no setting {name!r}"
        if name not in found
        else f"{name} of {broker} is {found[name]}, not {value}: it does not take that"
        for name, value in asked.items()
        if name not in found or not _is_same(value, found[name])
    ]
    for each in wrong:
        say(f"rocketpipe: {each}")
    return not wrong


def _is_same(asked: str, found: str) -> bool:
    """As Java reads them: `TRUE` is true, `010` is 10 and `1` may be 1.0."""
    try:
        return float(asked) == float(found)
    except ValueError:
        return asked.lower() == found.lower()


async def show_clusters(admin: AsyncAdmin, args: argparse.Namespace) -> bool:
    members = await _members(admin, None)
    rows = [
        await _cluster_row(admin, cluster, [each for each in members if each.cluster == cluster])
        for cluster in sorted({each.cluster for each in members})
    ]
    names = ("cluster", "brokers", "masters", "slaves", "topics", "in/s", "out/s")
    if args.json:
        for row in rows:
            print_json(dict(zip((*names[:5], "put_tps", "get_tps"), row, strict=True)))
    elif not rows:
        say("no clusters: no broker has registered with the NameServer")
    else:
        print_table(names, rows)
    return _complain(members)


async def _cluster_row(
    admin: AsyncAdmin, cluster: str, members: list[_Member]
) -> tuple[object, ...]:
    masters = [each for each in members if each.broker_id == MASTER_ID]
    told = [each.told for each in masters if isinstance(each.told, BrokerRuntime)]
    return (
        cluster,
        len({each.name for each in members}),
        len(masters),
        len(members) - len(masters),
        len(await admin.topics(cluster=cluster)),
        sum(each.put_tps for each in told),
        sum(each.get_tps for each in told),
    )
