"""The program itself: data to stdout, the rest to stderr.

It exits with 0 when done, 1 when something failed, 2 when misused, 130 when interrupted; but a
server that was asked to end, by whichever signal, is done.
"""

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from rocketpipe.errors import (
    BrokerError,
    InvalidMessage,
    InvalidSetting,
    MQError,
    NoNameServer,
    NoRoute,
)

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

# Each command's module, in the order in which `--help` lists them. Only the one that is asked for
# is imported: a broker starts in half the time without the client.
COMMANDS = {
    "demo": "demo",
    "serve": "serve",
    "send": "send",
    "consume": "consume",
    "topic": "topics",
    "route": "topics",
    "group": "groups",
    "message": "messages",
    "offsets": "offsets",
    "broker": "brokers",
    "cluster": "brokers",
    "archive": "archive",
    "publish": "publish",
    "replay": "replay",
    "audit": "audit",
    "completion": "completion",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the answer is the program's exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return execute(parser(arguments[0] if arguments else None).parse_args(arguments))


def execute(args: argparse.Namespace) -> int:
    """Do what the parsed arguments say; the answer is the program's exit code."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if args.debug else logging.WARNING,
        format="%(levelname)s %(name)s: %(message)s",
    )
    try:
        is_done = args.run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (MQError, OSError) as error:
        if args.debug:
            traceback.print_exc()
        else:
            print(f"rocketpipe: {explain(error)}", file=sys.stderr)
        return MISUSED if isinstance(error, InvalidSetting | InvalidMessage) else FAILED
    return FAILED if is_done is False else DONE


class _Parser(argparse.ArgumentParser):
    """One whose complaint is a line, without the usage; its commands get the same.

    How wide the terminal is, it looks when it gives help: the standard one looks at each argument,
    with a module that loads three kinds of compression.
    """

    def __init__(
        self, *, formatter_class: type[argparse.HelpFormatter] = argparse.HelpFormatter, **rest: Any
    ) -> None:
        super().__init__(formatter_class=partial(formatter_class, width=80), **rest)
        self._of_its_width = formatter_class

    def format_help(self) -> str:
        self.formatter_class = self._of_its_width
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(MISUSED, f"rocketpipe: {message}. '{self.prog} --help' tells more\n")


class _Version(argparse.Action):
    """Looked up when it is asked for: that takes longer than many a command."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib import metadata

        try:
            version = metadata.version("rocketpipe")
        except metadata.PackageNotFoundError:
            version = "of a source folder"
        print(f"rocketpipe {version}")
        parser.exit()


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or of the module alone that has this one."""
    program = _Parser(
        prog="rocketpipe",
        description="RocketMQ for Python: run a cluster, send and read messages, and look after "
        "topics, groups and brokers.",
    )
    program.add_argument(
        "--version", action=_Version, nargs=0, help="show the version of rocketpipe"
    )
    commands = program.add_subparsers(title="commands", required=True, metavar="command")
    modules = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for module in modules:
        import_module(f"rocketpipe.cli.{module}").add_to(commands)
    return program


def explain(error: Exception) -> str:
    """One line that says what to do next."""
    text = " ".join(str(error).split())
    if isinstance(error, NoNameServer):
        return f"{text}. Is it running there? --namesrv HOST:PORT or NAMESRV_ADDR name another"
    if isinstance(error, NoRoute):
        return f"{text}. 'rocketpipe topic list' shows which topics there are"
    if isinstance(error, BrokerError) and "AclException" in text:
        return f"{text}. Check --credentials"
    return text
