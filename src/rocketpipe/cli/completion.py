"""`completion`: what makes a shell complete our commands and options."""

import argparse

from rocketpipe.cli.commands import Commands
from rocketpipe.errors import ClientError

SHELLS = ("bash", "zsh", "tcsh")


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "completion",
        help="print what a shell needs to complete our commands",
        description="Print what a shell needs to complete our commands and options. For bash: "
        'eval "$(rocketpipe completion bash)" in ~/.bashrc.',
    )
    command.add_argument("shell", choices=SHELLS)
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    # Late, as it imports this module.
    from rocketpipe.cli.program import parser

    try:
        import shtab
    except ImportError:
        raise ClientError("completion needs shtab: pip install 'rocketpipe[cli]'") from None
    print(shtab.complete(parser(), shell=args.shell))
