"""Pulls that are held until there is something to answer."""

import asyncio
from typing import Any

from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.admin import InvokeBrokerToResetOffset
from tests.unit.broker.bench import Bench, send, simulated
from tests.unit.broker.reading import HELD, bodies, create_topic, join, pull, pull_header


class Timed:
    """A pull on its way, and when it was answered."""

    def __init__(self, client: Connection, **changes: Any) -> None:
        self.answered_at = 0.0
        self.task = asyncio.create_task(self._pull(client, changes))

    async def _pull(self, client: Connection, changes: dict[str, Any]) -> RemotingCommand:
        changes.setdefault("sys_flag", HELD)
        answer = await pull(client, **changes)
        self.answered_at = asyncio.get_running_loop().time()
        return answer


def now() -> float:
    return asyncio.get_running_loop().time()


@simulated
async def test_a_held_pull_is_answered_when_a_message_comes(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        waiting = Timed(client)
        await asyncio.sleep(3)
        assert len(broker.held_pulls) == 1
        sent_at = now()
        await send(client, queue_id=1)
        assert not waiting.task.done()
        await send(client, body=b"for you")
        answer = await waiting.task
        assert bodies(answer) == [b"for you"]
        assert waiting.answered_at - sent_at < 1
        assert len(broker.held_pulls) == 0


@simulated
async def test_what_comes_at_the_same_time_is_in_one_answer(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        waiting = Timed(client)
        await asyncio.sleep(1)
        await asyncio.gather(*(send(client, body=b"%d" % n) for n in range(5)))
        assert len(bodies(await waiting.task)) == 5


@simulated
async def test_a_held_pull_ends_when_its_time_is_up(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        start = now()
        long = Timed(client, suspend_timeout_millis=15_000)
        short = Timed(client, suspend_timeout_millis=500)
        for each, seconds in ((short, 0.5), (long, 15.0)):
            answer = await each.task
            assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")
            assert seconds <= each.answered_at - start < seconds + 0.5
        endless = Timed(client, suspend_timeout_millis=1 << 62)
        negative = Timed(client, suspend_timeout_millis=-5)
        start = now()
        await negative.task
        assert now() - start < 0.5
        await asyncio.wait([endless.task], timeout=59)
        assert not endless.task.done()
        endless.task.cancel()


@simulated
async def test_without_long_polling_a_pull_is_held_for_a_moment(bench: Bench) -> None:
    settings = {"long_polling_enable": False, "short_polling_time": 0.7}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await create_topic(client)
        start = now()
        await Timed(client).task
        assert 0.7 <= now() - start < 1.2


@simulated
async def test_only_a_message_with_the_right_tag_wakes_a_choosy_pull(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        start = now()
        waiting = Timed(client, subscription="wanted")
        skipping = Timed(client, subscription="other")
        await asyncio.sleep(1)
        await send(client, properties={"TAGS": "unwanted"})
        await asyncio.sleep(1)
        await send(client, body=b"yes", properties={"TAGS": "wanted"})
        assert bodies(await waiting.task) == [b"yes"]
        assert waiting.answered_at - start < 3
        # Five seconds after the first it does not want, a pull is told how far it got.
        answer = await skipping.task
        assert (answer.code, answer.remark) == (20, "NO_MATCHED_MESSAGE")
        assert answer.ext_fields["nextBeginOffset"] == "2"
        assert 6 <= skipping.answered_at - start < 7
        start = now()
        brief = Timed(client, subscription="other", queue_offset=2, suspend_timeout_millis=2000)
        await asyncio.sleep(1)
        await send(client, properties={"TAGS": "unwanted"})
        await brief.task
        assert 2 <= brief.answered_at - start < 2.5  # never later than it asked for


@simulated
async def test_a_woken_pull_is_checked_again(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await join(client, "orders")
        waiting = Timed(client, sys_flag=HELD & ~4)
        await asyncio.sleep(1)
        await join(client, "bills")
        await send(client)
        assert (await waiting.task).code == 24


@simulated
async def test_nobody_is_held_who_did_not_ask_or_would_not_hear(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        assert (await pull(client, timeout=1)).code == 19
        await client.send_oneway(pull_header(sys_flag=HELD).to_command(), timeout=3)
        await asyncio.sleep(1)
        assert len(broker.held_pulls) == 0
        # One that must move its offset is told so at once.
        assert (await pull(client, sys_flag=HELD, queue_offset=7, timeout=1)).code == 21


@simulated
async def test_pulls_of_a_lost_connection_are_forgotten(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as staying:
        await create_topic(staying)
        async with bench.client(broker.address) as leaving:
            waits = [Timed(leaving, queue_id=n % 4) for n in range(10)]
            stays = Timed(staying)
            await asyncio.sleep(1)
            assert len(broker.held_pulls) == 11
        await asyncio.gather(*(each.task for each in waits), return_exceptions=True)
        await asyncio.sleep(1)
        assert len(broker.held_pulls) == 1
        await send(staying)
        assert len(bodies(await stays.task)) == 1


@simulated
async def test_there_is_an_end_to_how_many_are_held(bench: Bench) -> None:
    settings = {"pull_thread_pool_queue_capacity": 3}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await create_topic(client)
        held = [Timed(client) for _ in range(3)]
        await asyncio.sleep(1)
        answer = await pull(client, sys_flag=HELD)
        assert answer.code == 2
        assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
        await send(client)
        for each in held:
            assert len(bodies(await each.task)) == 1
        assert (await pull(client, sys_flag=HELD, queue_offset=1)).code == 19


@simulated
async def test_thousands_are_held_and_woken_in_the_order_they_came(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        order: list[int] = []

        async def wait(number: int) -> None:
            await pull(client, sys_flag=HELD)
            order.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(3000)]
        await asyncio.sleep(2)
        assert len(broker.held_pulls) == 3000
        in_line: list[int] = []
        broker.store.on_written.append(lambda _: in_line.append(broker.held_pulls.woken))
        await send(client)
        await asyncio.gather(*tasks)
        assert order == list(range(3000))
        assert in_line == [3000]  # nobody is answered while the store tells of the message


@simulated
async def test_others_have_their_turns_while_many_are_woken(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        waits = [Timed(client).task for _ in range(500)]
        await asyncio.sleep(2)
        in_line: list[int] = []

        def look(_: int = 0) -> None:
            in_line.append(broker.held_pulls.woken)
            if in_line[-1]:
                asyncio.get_running_loop().call_soon(look)

        broker.store.on_written.append(look)
        await send(client)
        await asyncio.gather(*waits)
        assert in_line == list(range(500, -1, -50))


@simulated
async def test_a_reset_wakes_the_consumers_it_is_for(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for _ in range(3):
            await send(client)
        ours = Timed(client, queue_offset=3)
        others = Timed(client, queue_offset=3, consumer_group="others")
        await asyncio.sleep(1)
        reset = InvokeBrokerToResetOffset(
            topic="orders", group="readers", timestamp=0, is_force=True
        )
        await client.request(reset, timeout=3)
        answer = await ours.task
        assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
        assert answer.ext_fields["nextBeginOffset"] == "0"
        assert not others.task.done()
        assert (await others.task).code == 19


@simulated
async def test_a_broker_that_closes_lets_go_of_what_it_holds(bench: Bench) -> None:
    async with bench.broker() as broker:
        client_cm = bench.client(broker.address)
        client = await client_cm.__aenter__()
        await create_topic(client)
        waiting = Timed(client)
        await asyncio.sleep(1)
    assert len(broker.held_pulls) == 0
    await asyncio.wait([waiting.task], timeout=5)
    assert waiting.task.exception() is not None
    await client_cm.__aexit__(None, None, None)
