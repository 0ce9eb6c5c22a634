"""How a command is declared: its words, its options, and the function that does its work."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from rocketpipe.cli.connecting import admin, cluster_options
from rocketpipe.cli.output import require_rich, say
from rocketpipe.client.admin.admin import AsyncAdmin
from rocketpipe.errors import ClientError, InvalidSetting

Commands = argparse._SubParsersAction  # what `add_subparsers` gives; it has no public name
# False: it went wrong, and that was said already.
AdminWork = Callable[[AsyncAdmin, argparse.Namespace], Awaitable[bool | None]]


def add_family(
    commands: "Commands[argparse.ArgumentParser]", name: str, help_text: str
) -> "Commands[argparse.ArgumentParser]":
    """A word that is followed by another: `topic list`."""
    family = commands.add_parser(name, help=help_text, description=f"{_sentence(help_text)}.")
    return family.add_subparsers(title="commands", required=True, metavar="command")


def add_command(
    commands: "Commands[argparse.ArgumentParser]",
    name: str,
    work: AdminWork,
    help_text: str,
    *,
    more: str = "",
) -> argparse.ArgumentParser:
    """A command that asks a cluster; the parser is for its own arguments."""
    command = commands.add_parser(
        name,
        help=help_text,
        description=f"{_sentence(help_text)}. {more}".rstrip(),
        parents=[cluster_options()],
    )

    def run(args: argparse.Namespace) -> bool | None:
        if not args.json:
            require_rich()

        async def main() -> bool | None:
            async with admin(args) as client:
                return await work(client, args)

        return asyncio.run(main())

    command.set_defaults(run=run)
    return command


def add_confirmation(command: argparse.ArgumentParser) -> None:
    command.add_argument("--yes", action="store_true", help="do not ask whether you mean it")


async def confirm(args: argparse.Namespace, what: str) -> None:
    """Ask a person; a program has to say so beforehand."""
    if args.yes:
        return
    if not sys.stdin.isatty() or args.json:
        raise InvalidSetting(f"{what} can't be undone: give --yes if you mean it")
    say(f"{what} can't be undone. Type 'yes' to go on:")
    if (await _typed_line()).strip().lower() not in ("y", "yes"):
        raise ClientError("nothing was done")


async def _typed_line() -> str:
    """What a person types; nothing for Ctrl-D. Ctrl-C ends it, as the event loop goes on."""
    loop = asyncio.get_running_loop()
    is_typed = asyncio.Event()
    loop.add_reader(sys.stdin, is_typed.set)
    try:
        await is_typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
