"""`consume`: the messages of a topic, as a member of a group or as nobody."""

import argparse
import asyncio
import signal
from collections.abc import Mapping

from rocketpipe.cli.commands import Commands
from rocketpipe.cli.connecting import client_settings, cluster_options
from rocketpipe.cli.output import message_json, print_json, print_text, say
from rocketpipe.cli.texts import TIME_HELP, count, moment_ms, show_body, show_queue, show_time
from rocketpipe.client.admin.messages import TOOLS_GROUP
from rocketpipe.client.consumer.pull_consumer import AsyncPullConsumer
from rocketpipe.client.consumer.settings import FIRST, LAST, PullConsumerSettings
from rocketpipe.client.consumer.subscriptions import Expression, Sql92
from rocketpipe.errors import ClientError, InvalidSetting
from rocketpipe.message import MessageQueue, StoredMessage

POLL_SECONDS = 1.0  # between two looks whether all is read
STALLED_POLLS_MAX = 10  # that bring nothing though there is something


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "consume",
        help="read messages",
        description="Read the messages of a topic that are there now, each a line. Without "
        "--group nobody will know; with it, they count as consumed once they are printed.",
        parents=[cluster_options()],
    )
    command.add_argument("topic")
    add = command.add_argument
    add("--follow", action="store_true", help="go on with those that come, until Ctrl-C")
    add(
        "--from",
        dest="start",
        type=_start,
        metavar="WHERE",
        help=f"first, last, or a time: {TIME_HELP}. By default first, or last with --follow; "
        "a group goes on where it was",
    )
    add("--tag", metavar="EXPRESSION", help="only those with such a tag: 'paid || refunded'")
    add("--sql", metavar="EXPRESSION", help="only those with such properties: 'amount > 100'")
    add("--limit", type=count, metavar="N", help="not more than so many")
    add("--group", help="the consumer group to be a member of")
    add("--skip-gaps", action="store_true", help="go on where messages are gone already")
    add("--bodies", action="store_true", help="print nothing but the bodies")
    command.set_defaults(run=run)


def _start(text: str) -> str | int:
    return text if text in (FIRST, LAST) else moment_ms(text)


def run(args: argparse.Namespace) -> None:
    if args.tag and args.sql:
        raise InvalidSetting("give --tag or --sql, not both")
    start = args.start
    if start is None:
        start = LAST if args.follow and args.group is None else FIRST
    settings = PullConsumerSettings(
        args.group or TOOLS_GROUP,
        **client_settings(args),
        consume_from=start,
        auto_commit=args.group is not None,
        skip_gaps=args.skip_gaps,
    )
    if asyncio.run(_consume(args, settings)):
        raise KeyboardInterrupt


async def _consume(args: argparse.Namespace, settings: PullConsumerSettings) -> bool:
    """Whether it was interrupted."""
    interrupted = asyncio.Event()
    # Not by an error out of the loop below: what is printed is to count as consumed.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    async with AsyncPullConsumer(settings) as consumer:
        ends = await _begin(consumer, args)
        printed = stalled = 0
        positions: Mapping[MessageQueue, int] = {}
        while not interrupted.is_set() and (args.limit is None or printed < args.limit):
            left = None if args.limit is None else args.limit - printed
            for message in await _poll(consumer, interrupted, left):
                _print(message, args)
                printed += 1
            if args.follow:
                continue
            before, positions = positions, await consumer.offsets()
            if all(position >= ends.get(queue, 0) for queue, position in positions.items()):
                break
            stalled = stalled + 1 if positions == before else 0
            if stalled == STALLED_POLLS_MAX:
                raise ClientError(
                    f"nothing comes of topic {args.topic!r}, though not all is read: a broker is "
                    "gone, or refuses the filter. --debug tells more"
                )
        if not printed and not args.json and not interrupted.is_set():
            say(f"no messages in topic {args.topic!r}" + (" for us" if args.group else ""))
    return interrupted.is_set()


async def _begin(
    consumer: AsyncPullConsumer, args: argparse.Namespace
) -> Mapping[MessageQueue, int]:
    """Start reading; where the queues end now, so that we know when all is read."""
    expression: Expression = Sql92(args.sql) if args.sql else args.tag or "*"
    queues = await consumer.queues(args.topic)  # NoRoute: a group would wait for the topic
    if args.group is not None:
        await consumer.subscribe(args.topic, expression)
    else:
        await consumer.assign(queues, expression)
        # An old broker says of a young queue that everybody is at its first message.
        await asyncio.gather(*(_seek(consumer, queue) for queue in queues))
    positions, lags = await consumer.offsets(), await consumer.lag()
    return {queue: positions[queue] + lags.get(queue, 0) for queue in positions}


async def _seek(consumer: AsyncPullConsumer, queue: MessageQueue) -> None:
    start = consumer.settings.consume_from
    if isinstance(start, int):
        await consumer.seek_to_time(queue, start)
    elif start == LAST:
        await consumer.seek_to_end(queue)
    else:
        await consumer.seek_to_begin(queue)


async def _poll(
    consumer: AsyncPullConsumer, interrupted: asyncio.Event, messages_max: int | None
) -> list[StoredMessage]:
    """Some messages; none if none came for a moment, or when it is time to end."""
    ends = asyncio.ensure_future(interrupted.wait())
    polls = asyncio.ensure_future(consumer.poll(timeout=POLL_SECONDS, messages_max=messages_max))
    await asyncio.wait({ends, polls}, return_when=asyncio.FIRST_COMPLETED)
    ends.cancel()
    if polls.done():
        return polls.result()
    polls.cancel()
    await asyncio.gather(polls, return_exceptions=True)
    return []


def _print(message: StoredMessage, args: argparse.Namespace) -> None:
    if args.json:
        print_json(message_json(message))
    elif args.bodies:
        print_text(show_body(message.body))
    else:
        where = f"{show_queue(message.queue)} {message.queue_offset}"
        labels = " ".join(filter(None, (message.tags, *message.keys)))
        parts = (show_time(message.store_timestamp_ms), where, f"[{labels}]" if labels else "")
        print_text("  ".join((*filter(None, parts), show_body(message.body))))
