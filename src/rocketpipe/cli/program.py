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

from rocketpipe.cli import (
    brokers,
    completion,
    consume,
    groups,
    messages,
    offsets,
    send,
    serve,
    topics,
)
from rocketpipe.errors import (
    BrokerError,
    InvalidMessage,
    InvalidSetting,
    MQError,
    NoNameServer,
    NoRoute,
)

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

# In the order in which `--help` lists them.
COMMANDS = (serve, send, consume, topics, groups, messages, offsets, brokers, completion)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the answer is the program's exit code."""
    args = parser().parse_args(arguments)
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


def parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(
        prog="rocketpipe",
        description="RocketMQ for Python: run a cluster, send and read messages, and look after "
        "topics, groups and brokers.",
    )
    commands = program.add_subparsers(title="commands", required=True, metavar="command")
    for module in COMMANDS:
        module.add_to(commands)
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
