"""What a busy broker says: texts and codes of Apache's, from causes that are real."""

import asyncio
import re

from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from tests.unit.broker.bench import Bench, messages, send, send_header, simulated

BUSY = 2


def asking(client: Connection, body: bytes = b"x") -> asyncio.Task[RemotingCommand]:
    return asyncio.create_task(client.invoke(send_header().to_command(body), timeout=10))


async def stuck(bench: Bench, client: Connection, seconds: float) -> asyncio.Task[RemotingCommand]:
    """One send that the store took, and whose message the disk does not take."""
    await send(client)
    bench.disk.is_stuck = True
    first = asking(client)
    await asyncio.sleep(seconds)
    return first


@simulated
async def test_a_send_waits_while_the_disk_does(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        first = await stuck(bench, client, 0.1)
        second = asking(client, b"second")
        await asyncio.sleep(0.1)
        assert broker.flow_control.queue_size == 1
        bench.disk.is_stuck = False
        assert [(await task).code for task in (first, second)] == [0, 0]
        assert messages(broker)[-1].body == b"second"
        assert broker.flow_control.queue_size == broker.flow_control.unanswered == 0


@simulated
async def test_who_waits_for_200_ms_is_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        first = await stuck(bench, client, 0.1)
        began = asyncio.get_running_loop().time()
        refused = await asyncio.gather(asking(client), asking(client))
        assert 0.2 <= asyncio.get_running_loop().time() - began <= 0.3
        assert {answer.code for answer in refused} == {BUSY}
        text = (
            r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, "
            r"period in queue: (\d+)ms, size of queue: (\d)"
        )
        found = [re.fullmatch(text, str(answer.remark)) for answer in refused]
        assert [match and match[2] for match in found] == ["1", "0"]
        assert all(match and 200 <= int(match[1]) <= 220 for match in found)
        assert all(answer.ext_fields == {} for answer in refused)
        bench.disk.is_stuck = False
        assert (await first).code == 0


@simulated
async def test_who_waits_is_refused_at_once_when_the_disk_is_stuck_for_a_second(
    bench: Bench,
) -> None:
    settings = {"wait_time_in_send_queue": 60.0}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await stuck(bench, client, 0.1)
        waiting = await asking(client)
        assert waiting.code == BUSY
        assert str(waiting.remark).startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow contro")
        late = await asking(client)
        assert late.code == BUSY
        assert late.remark == "[REJECTREQUEST]system busy, start flow control for a while"
        bench.disk.is_stuck = False
        await asyncio.sleep(1)
        await send(client)


@simulated
async def test_how_long_the_disk_may_be_stuck_is_a_setting(bench: Bench) -> None:
    store = StoreSettings(os_page_cache_busy_timeout=0.05)
    async with bench.broker(store=store) as broker, bench.client(broker.address) as client:
        first = await stuck(bench, client, 0.1)
        assert str((await asking(client)).remark).startswith("[REJECTREQUEST]")
        bench.disk.is_stuck = False
        assert (await first).code == 0


@simulated
async def test_there_is_an_end_to_the_queue(bench: Bench) -> None:
    settings = {"send_thread_pool_queue_capacity": 3}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        first = await stuck(bench, client, 0.02)  # the disk has it, but it counts
        waiting = [asking(client), asking(client)]
        full = await asking(client)
        assert full.code == BUSY
        assert full.remark == "[OVERLOAD]system busy, start flow control for a while"
        bench.disk.is_stuck = False
        assert [(await task).code for task in (first, *waiting)] == [0, 0, 0]


@simulated
async def test_there_is_an_end_to_the_bytes_that_wait(bench: Bench) -> None:
    settings = {"send_queue_bytes_max": 10_000}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await stuck(bench, client, 0.1)
        waiting = asking(client, bytes(10_000))
        assert str((await asking(client)).remark).startswith("[OVERLOAD]")
        bench.disk.is_stuck = False
        assert (await waiting).code == 0
        first = await stuck(bench, client, 0.1)
        waiting = asking(client, bytes(9_000))  # there is as much room as before
        await asyncio.sleep(0.05)
        bench.disk.is_stuck = False
        assert [(await task).code for task in (first, waiting)] == [0, 0]


@simulated
async def test_fast_failure_can_be_switched_off(bench: Bench) -> None:
    settings = {"broker_fast_failure_enable": False}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await stuck(bench, client, 0.1)
        waiting = asking(client)
        await asyncio.sleep(3)
        assert not waiting.done()
        bench.disk.is_stuck = False
        assert (await waiting).code == 0


@simulated
async def test_who_waits_when_the_broker_closes_is_told(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        first = await stuck(bench, client, 0.1)
        waiting = asking(client)
        await asyncio.sleep(0.05)
        broker.flow_control.close()
        assert (await waiting).code == BUSY
        bench.disk.is_stuck = False
        assert (await first).code == 0


@simulated
async def test_a_refusal_after_waiting_is_the_one_there_would_have_been_before(
    bench: Bench,
) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await stuck(bench, client, 0.1)
        wrong = asyncio.create_task(
            client.invoke(send_header("no good").to_command(b"x"), timeout=10)
        )
        await asyncio.sleep(0.05)
        bench.disk.is_stuck = False
        assert (await wrong).code == 29


@simulated
async def test_a_disk_that_fails_refuses_sends_with_a_clear_code(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client)
        bench.disk.fails_writes = True
        answers = [await asking(client), await asking(client)]
        assert [answer.code for answer in answers] == [14, 14]
        assert all("service not available now. It may be" in str(a.remark) for a in answers)
        assert answers[0].ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
