"""`send`: messages from arguments, a file or standard input; or many of them, for load."""

import argparse
import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path

from rocketpipe.cli.commands import Commands
from rocketpipe.cli.connecting import client_settings, cluster_options
from rocketpipe.cli.load import Load, progress_bar
from rocketpipe.cli.output import print_facts, print_json, print_text, queue_json, require_rich, say
from rocketpipe.cli.texts import count, pair, queue_name, rate, seconds, show_queue
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.clock import Clock, SystemClock
from rocketpipe.errors import ClientError, InvalidSetting, MQError, NoRoute
from rocketpipe.message import Message, SendResult
from rocketpipe.sync.admin import Admin
from rocketpipe.sync.producer import Producer

IN_FLIGHT_MAX = 64  # of a load
TIMERS_SINCE = (5, 0)


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "send",
        help="send messages",
        description="Send messages: each argument is one; without any, each line of standard "
        "input. The first that fails ends it. With --count, send that many and show how fast.",
        parents=[cluster_options()],
    )
    command.add_argument("topic")
    command.add_argument("body", nargs="*")
    add = command.add_argument
    add("--file", type=Path, help="a file whose content is one message")
    add("--lines", action="store_true", help="each line of the file is one")
    add("--key", action="append", default=[], help="to find it by; may be repeated")
    add("--tag", help="to filter it by")
    add(
        "--property",
        action="append",
        default=[],
        type=pair,
        metavar="KEY=VALUE",
        dest="properties",
        help="of the messages; may be repeated",
    )
    add("--delay", type=seconds, metavar="TIME", help="deliver it so much later (5.x): 10s, 5m")
    add("--delay-level", type=count, default=0, metavar="N", help="or by level: 1 is 1s, 3 is 10s")
    add("--queue", type=queue_name, metavar="BROKER:ID", help="to this queue and no other")
    add("--group", default="rocketpipe-cli", help="the producer group")
    load = command.add_argument_group("load").add_argument
    load("--count", type=count, metavar="N", help="send so many, over and over the same")
    load("--size", type=count, metavar="BYTES", help="of a body that is made up")
    load("--rate", type=rate, metavar="N", help="so many a second at most")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> bool:
    if not args.json:
        require_rich()
    settings = ProducerSettings(args.group, **client_settings(args), send_timeout=args.timeout)
    bodies = _bodies(args)
    if args.count is not None:
        some = list(bodies)  # before anything is connected: it may be a file that is not there
        bodies = itertools.islice(itertools.cycle(some), args.count)
    if args.delay is not None:
        _require_timers(args)
    clock = SystemClock()
    messages = paced((_message(args, body) for body in bodies), args.rate, clock)
    with Producer(settings) as producer:
        if args.count is not None:
            return _send_load(producer, messages, args, clock)
        for message in messages:
            queue = args.queue.of(args.topic) if args.queue else None
            _print_result(producer.send(message, queue=queue), is_json=args.json)
    return True


def _require_timers(args: argparse.Namespace) -> None:
    """ClientError if a broker is too old for --delay: it would take it, and deliver at once."""
    with Admin(**client_settings(args)) as admin:
        masters = {each.name: each.master for each in admin.brokers() if each.master}
        try:
            names = set(admin.route(args.topic).brokers)
        except NoRoute:
            names = set(masters)  # any of them may be the one that makes the topic
        if args.queue:
            names = {args.queue.broker_name}
        for name in sorted(names & masters.keys()):
            try:
                told = admin.broker_runtime(masters[name])
            except MQError:
                continue  # it is down, or tells only its administrators, which is of 5.x
            if told.release < TIMERS_SINCE:
                raise ClientError(
                    f"{name} is a broker of {told.version}, which delivers at once what is to be "
                    "delayed for a time: give --delay-level"
                )


def _bodies(args: argparse.Namespace) -> Iterator[bytes]:
    given = [bool(args.body), args.file is not None, args.size is not None]
    if sum(given) > 1:
        raise InvalidSetting("give messages as arguments, by --file or by --size, not several")
    if args.body:
        return (body.encode("utf-8", "surrogateescape") for body in args.body)
    if args.size is not None:
        return iter([b"x" * args.size])
    if args.file is not None:
        content = args.file.read_bytes()
        return _lines(content.splitlines()) if args.lines else iter([content])
    if args.count is not None:
        raise InvalidSetting("what shall be sent? Give a body, --file or --size")
    return _lines(sys.stdin.buffer)


def _lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    empty = 0
    for line in lines:
        body = line.rstrip(b"\r\n")
        if body:
            yield body
        else:
            empty += 1
    if empty:
        say(f"left out {empty} empty {'line' if empty == 1 else 'lines'}")


def _message(args: argparse.Namespace, body: bytes) -> Message:
    return Message(
        args.topic,
        body,
        tags=args.tag,
        keys=args.key,
        properties=dict(args.properties),
        delay_level=args.delay_level,
        delay_ms=None if args.delay is None else round(args.delay * 1000),
    )


def paced(messages: Iterable[Message], rate: float | None, clock: Clock) -> Iterator[Message]:
    """The same, but not more a second than this; what comes late does not catch up at once."""
    pause = threading.Event()  # nobody sets it
    due = clock.monotonic()
    for message in messages:
        if rate is not None:
            now = clock.monotonic()
            if due > now:
                pause.wait(due - now)
            due = max(due, now - 1.0) + 1.0 / rate
        yield message


def _print_result(result: SendResult, *, is_json: bool) -> None:
    if is_json:
        print_json(
            {
                **queue_json(result.queue),
                "offset": result.queue_offset,
                "status": result.status.name,
                "message_id": result.message_id,
                "offset_message_id": result.offset_message_id,
                "attempts": len(result.attempts),
            }
        )
    else:
        where = f"{show_queue(result.queue)} at {result.queue_offset}"
        print_text(f"{result.status.name}  {result.message_id}  {where}")


def _send_load(
    producer: Producer, messages: Iterable[Message], args: argparse.Namespace, clock: Clock
) -> bool:
    """Send them all, several at a time; what fails is counted, and the first of it told.

    Ctrl-C ends it, and how many were sent until then is told as well.
    """
    load = Load(clock)
    room = threading.BoundedSemaphore(IN_FLIGHT_MAX)
    queue = args.queue.of(args.topic) if args.queue else None
    is_cut_short = False
    with progress_bar(args.count, "sent") as advance:
        try:
            for message in messages:
                room.acquire()
                started = clock.monotonic()

                def done(future: "Future[SendResult]", started: float = started) -> None:
                    load.finished(started, future.exception())
                    advance()
                    room.release()

                producer.send_async(message, queue=queue).add_done_callback(done)
        except KeyboardInterrupt:
            is_cut_short = True  # by Ctrl-C: what is on its way is still counted
        for _ in range(IN_FLIGHT_MAX):  # until the last has ended
            room.acquire(timeout=args.timeout if is_cut_short else None)
    report = load.report()
    if args.json:
        print_json({"topic": args.topic, **report})
    else:
        print_facts(
            {
                "sent": report["sent"],
                "failed": report["failed"],
                "took": f"{report['seconds']:,.2f} s",
                "rate": f"{report['per_second']:,.0f} messages a second",
                "latency": f"p50 {report['p50_ms']:.1f} ms, p99 {report['p99_ms']:.1f} ms, "
                f"max {report['max_ms']:.1f} ms",
            }
        )
    if load.first_error is not None:
        say(f"rocketpipe: the first that failed: {load.first_error}")
    if is_cut_short:
        raise KeyboardInterrupt
    return load.first_error is None
