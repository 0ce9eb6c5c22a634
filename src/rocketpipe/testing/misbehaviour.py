"""Trouble on a simulated network, one fault after another, by the roll of seeded dice."""

import asyncio
import random
from collections.abc import Callable, Sequence

from rocketpipe.testing.simulated_network import SimulatedNetwork

Mend = Callable[[], None]
Fault = Callable[[SimulatedNetwork, Sequence[str], random.Random], Mend]
"""Breaks something, somewhere among the hosts, and returns what mends it."""


def cut(network: SimulatedNetwork, hosts: Sequence[str], dice: random.Random) -> Mend:
    a, b = dice.sample(hosts, 2)
    network.cut(a, b)
    return lambda: network.heal(a, b)


def cut_one_way(network: SimulatedNetwork, hosts: Sequence[str], dice: random.Random) -> Mend:
    a, b = dice.sample(hosts, 2)
    network.cut_one_way(a, b)
    return lambda: network.heal(a, b)


def reset(network: SimulatedNetwork, hosts: Sequence[str], dice: random.Random) -> Mend:
    network.reset(*dice.sample(hosts, 2))
    return lambda: None


def freeze(network: SimulatedNetwork, hosts: Sequence[str], dice: random.Random) -> Mend:
    host = dice.choice(hosts)
    network.freeze(host)
    return lambda: network.thaw(host)


# Not a crash: only a test knows how to start its program again, and can write a Fault that does.
FAULTS: Sequence[Fault] = (cut, cut_one_way, reset, freeze)


async def misbehave(
    network: SimulatedNetwork,
    hosts: Sequence[str],
    dice: random.Random,
    *,
    until: float,
    faults: Sequence[Fault] = FAULTS,
    calm: tuple[float, float] = (0.1, 5.0),
    trouble: tuple[float, float] = (0.1, 5.0),
) -> None:
    """Break one thing after another until that time of the loop, and mend each after a while.

    `calm` and `trouble` are the shortest and the longest time that all is well, or one thing
    broken. For troubles that overlap, run several at once. All is mended when it ends, even by
    being cancelled.
    """
    loop = asyncio.get_running_loop()
    while (begin := loop.time() + dice.uniform(*calm)) < until:
        await asyncio.sleep(begin - loop.time())
        mend = dice.choice(faults)(network, hosts, dice)
        try:
            await asyncio.sleep(min(dice.uniform(*trouble), until - loop.time()))
        finally:
            mend()
