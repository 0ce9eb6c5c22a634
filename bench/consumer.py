"""Measures our consumers on one Apache broker: beside Java's, and beside single pulls.

A million messages are sent once, and each round consumes them whole with a new group. Each
measurement is a process of its own that warms up by consuming another topic first. They take turns,
and the median of the rounds counts.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count

from bench.broker import MESSAGES, TheirCluster, send_all
from bench.measuring import (
    HERE,
    ROUNDS,
    VERSION,
    F,
    Figures,
    Latency,
    Rounds,
    figures,
    in_turns,
    latency,
    our_output,
    our_script,
    say,
)
from rocketpipe import Admin, PullConsumerSettings
from tests.apache.programs import java_program

WARM_UP_MESSAGES = 200_000
TOPIC, WARM_UP_TOPIC = "million", "warm-up"
PACE = ("200", "8", "5")  # messages a second, for so many seconds, after so many
PULLS_IN_FLIGHT = PullConsumerSettings.pulls_in_flight_max
JAVA_SECONDS_MAX = 280.0

_numbers = count(1)


def ours(how: str, namesrv: str) -> Figures:
    return our_script("consuming.py", how, namesrv, WARM_UP_TOPIC, TOPIC, new_name())


def javas(namesrv: str) -> Figures:
    return figures(_java("ConsumeAll", namesrv, WARM_UP_TOPIC, TOPIC, new_name()))


def our_latency(how: str, namesrv: str) -> Latency:
    return latency(our_output("latency.py", how, namesrv, *_topic_and_group(namesrv), *PACE))


def java_latency(namesrv: str) -> Latency:
    return latency(_java("SendToListener", namesrv, *_topic_and_group(namesrv), *PACE))


def _topic_and_group(namesrv: str) -> tuple[str, str]:
    """New ones: a new group would begin with what another sent to a topic that is still young."""
    topic = new_name()
    with Admin(namesrv=namesrv) as admin:
        admin.create_topic(topic)
    return topic, new_name()


def new_name() -> str:
    return f"benchmark-{next(_numbers)}"


def _java(program: str, *arguments: str) -> str:
    path = HERE / "java" / f"{program}.java"
    return java_program(VERSION, path, arguments, full_speed=True, timeout=JAVA_SECONDS_MAX).output


CONSUMING: Mapping[str, Callable[[str], Figures]] = {
    "push": partial(ours, "push"),
    "push-async": partial(ours, "push-async"),
    "java": javas,
    "range": partial(ours, str(PULLS_IN_FLIGHT)),
    "single": partial(ours, "1"),
}
LATENCIES: Mapping[str, Callable[[str], Latency]] = {
    "latency": partial(our_latency, "plain"),
    "latency-async": partial(our_latency, "async"),
    "java-latency": java_latency,
}
# Name, work, who else does it, and what the ratio of rates is to be.
ROWS = (
    ("push", "push consumer, plain listener; Java: `benchmark.Consumer`", "java", "1.0x"),
    ("push-async", "push consumer, coroutine; Java: `benchmark.Consumer`", "java", "1.0x"),
    ("range", "`pull_range`; the other: one pull at a time", "single", "4x"),
)


def main() -> None:
    with TheirCluster() as cluster:
        fill(cluster.namesrv)
        consumed = all_in_turns(CONSUMING, cluster.namesrv)
        late = all_in_turns(LATENCIES, cluster.namesrv)
    print(f"\nConsumers on one Apache RocketMQ {VERSION} broker, a million messages, median of")
    print(f"{ROUNDS} rounds; CPU of the client in µs a message:\n")
    print("| row | work | ours | the other's | ratio | wanted | our CPU | the other's | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, work, other, wanted in ROWS:
        print(rate_line(name, work, consumed[name], consumed[other], wanted))
    for name in ("latency", "latency-async"):
        for at, percentile in enumerate(Latency._fields):
            print(latency_line(f"{name} {percentile}", late[name], late["java-latency"], at))


def all_in_turns(measures: Mapping[str, Callable[[str], F]], namesrv: str) -> dict[str, Rounds[F]]:
    """Without a round to warm up: each process does that by itself."""
    bound = {name: partial(measure, namesrv) for name, measure in measures.items()}
    return in_turns(bound, warm_up_rounds=0)


def fill(namesrv: str) -> None:
    say("a million messages to consume")
    with Admin(namesrv=namesrv) as admin:
        for topic in (TOPIC, WARM_UP_TOPIC):
            admin.create_topic(topic)
    for topic, messages in ((WARM_UP_TOPIC, WARM_UP_MESSAGES), (TOPIC, MESSAGES)):
        asyncio.run(send_all(namesrv, topic, messages))


def rate_line(
    name: str, work: str, my_rounds: Rounds[Figures], other_rounds: Rounds[Figures], wanted: str
) -> str:
    mine, other = my_rounds.median, other_rounds.median
    cpu = my_rounds.ratio(other_rounds, Figures._fields.index("cpu"))
    return (
        f"| {name} | {work} | {mine.rate:,.0f}/s | {other.rate:,.0f}/s "
        f"| **{my_rounds.ratio(other_rounds):.2f}x** | at least {wanted} "
        f"| {mine.cpu:.1f} | {other.cpu:.1f} | {cpu:.2f}x |"
    )


def latency_line(name: str, ours: Rounds[Latency], javas: Rounds[Latency], at: int) -> str:
    return (
        f"| {name} | from `send` to the listener, {PACE[0]} a second; Java: the same "
        f"| {ours.median[at] / 1000:.2f} ms | {javas.median[at] / 1000:.2f} ms | "
        f"**{ours.ratio(javas, at):.2f}x** "
        "| at most 1.0x | | | |"
    )
