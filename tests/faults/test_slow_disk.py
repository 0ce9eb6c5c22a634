"""A broker whose real disk is stuck: sends hear of it in Apache's words, and all else goes on."""

import asyncio
import time
from pathlib import Path

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.frame import RemotingCommand
from tests.slow_disk import SlowDisk
from tests.unit.broker.bench import send, send_header
from tests.unit.broker.reading import bodies, pull

pytestmark = pytest.mark.slow

BUSY = 2
SLOW = 0.05  # a write that long has the next ones made by another thread


def asking(client: Connection, body: bytes) -> asyncio.Task[RemotingCommand]:
    return asyncio.create_task(client.invoke(send_header().to_command(body), timeout=30))


def test_a_stuck_disk_holds_up_no_reader_and_refuses_who_sends(tmp_path: Path) -> None:
    async def main() -> None:
        disk = SlowDisk()
        broker = Broker(BrokerSettings(listen_port=0), tmp_path, disk=disk)
        await broker.start()
        client = await connect(AsyncioNetwork(), broker.address, timeout=3.0)
        try:
            disk.seconds = SLOW
            await send(client, body=b"stored")
            disk.seconds = 0.0
            disk.may_write.clear()
            first = asking(client, b"first")
            await asyncio.sleep(SLOW)
            began = time.monotonic()
            waiting = await asking(client, b"refused")
            assert waiting.code == BUSY
            assert str(waiting.remark).startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow")
            assert time.monotonic() - began >= 0.2
            assert bodies(await pull(client)) == [b"stored"]
            await asyncio.sleep(1)
            late = await asking(client, b"refused")
            assert late.code == BUSY
            assert late.remark == "[REJECTREQUEST]system busy, start flow control for a while"
            assert not first.done()
            disk.may_write.set()
            assert (await first).code == 0
            await send(client, body=b"last")
            assert bodies(await pull(client)) == [b"stored", b"first", b"last"]
        finally:
            disk.may_write.set()
            await client.close()
            await broker.close()

    asyncio.run(main())
