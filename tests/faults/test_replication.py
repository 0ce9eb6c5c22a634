"""A master and its slave that lose power, and what they had not synced, by seed: both end alike."""

import asyncio

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.errors import MQError
from rocketpipe.message import Message, MessageQueue
from rocketpipe.testing.simulated_loop import run
from tests.faults.whole_cluster import FOLDER, NAMESERVER, WholeCluster
from tests.stores import everything

SEEDS = 100
SEEDS_THAT_FOUND_SOMETHING = (137, 343)
CRASHES = 6
STORE = {"flush_disk_type": "async", "flush_interval": 2.0}
SECONDS_MAX = 60.0  # simulated: until the slave has its master's log, when nothing breaks any more


async def live(seed: int) -> list[str]:
    """What slaves have set aside."""
    cluster = WholeCluster(seed, has_slave=True, store=STORE)
    dice = cluster.dice
    master, slave = cluster.masters[0], cluster.slave
    assert slave is not None
    await cluster.start()
    await cluster.create_topic("orders")
    async with AsyncProducer(
        "group", namesrv=str(NAMESERVER), environment=cluster.environment(1)
    ) as producer:
        sending = asyncio.create_task(_send_on_and_on(producer, cluster))
        for _ in range(CRASHES):
            await asyncio.sleep(dice.uniform(0.0, 4.0))
            machine = dice.choice([master, master, slave])
            await machine.crash(is_power_lost=True)
            await asyncio.sleep(dice.choice([0.0, 3.0]))
            await machine.start()
        await asyncio.sleep(dice.choice([0.0, 10.0]))
        sending.cancel()
        await asyncio.wait([sending])
        # A slave keeps what its master lost until something else comes in its place.
        while not await _send(producer, cluster):
            pass
    assert master.broker is not None
    assert slave.broker is not None
    async with asyncio.timeout(SECONDS_MAX):
        while _log(slave.broker, slave.broker) != _log(master.broker, slave.broker):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    assert everything(slave.broker.store).items() <= everything(master.broker.store).items()
    await cluster.stop()
    return [name for name in slave.disk.names(FOLDER / "commitlog") if ".cut-" in name]


async def _send_on_and_on(producer: AsyncProducer, cluster: WholeCluster) -> None:
    while True:
        await _send(producer, cluster)
        await asyncio.sleep(cluster.dice.choice([0.0, 0.01, 0.5]))


async def _send(producer: AsyncProducer, cluster: WholeCluster) -> bool:
    """Whether it was stored."""
    body = cluster.dice.randbytes(cluster.dice.choice([10, 10, 900]))
    queue = MessageQueue("orders", "broker-a", cluster.dice.randrange(4))
    try:
        await producer.send(Message("orders", body), queue=queue)
    except MQError:
        await asyncio.sleep(0.5)
        return False
    return True


def _log(broker: Broker, of: Broker) -> bytes:
    """What a log holds from where that of the other begins."""
    position = of.store.min_physical_offset
    parts = []
    while part := broker.store.log_slice(position, 1 << 20):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


@pytest.mark.slow  # all of them together
@pytest.mark.parametrize("seed", [*range(SEEDS), *SEEDS_THAT_FOUND_SOMETHING])
def test_a_slave_ends_up_with_the_log_of_a_master_that_lost_power(seed: int) -> None:
    run(live(seed))


def test_masters_that_lost_power_have_lost_something() -> None:
    assert sum(len(run(live(seed))) for seed in range(8)) > 3
