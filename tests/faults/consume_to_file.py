"""A push consumer as a process of its own, which writes down what becomes of its queues.

    python -m tests.faults.consume_to_file NAMESRV FILE

A line says `reads BROKER QUEUE OFFSET` when it begins to read a queue there, and `consumed BROKER
QUEUE OFFSET BODY` when the listener returns. SIGTERM ends it in order.
"""

import asyncio
import random
import signal
import sys
from pathlib import Path

from rocketpipe import AsyncPushConsumer, MessageQueue, StoredMessage
from rocketpipe.client.consumer.process_queue import Assigned
from tests.faults.serve_forked import die_with_parent

GROUP = "readers"
TOPIC = "orders"


async def main(namesrv: str, file: Path) -> None:
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    with file.open("ab", buffering=0) as journal:  # so that a kill leaves nothing unsaid

        async def listen(messages: list[StoredMessage]) -> None:
            # Long enough for offsets to be stored, and for the process to be killed meanwhile.
            await asyncio.sleep(random.choice([0.0, 0.01, 0.5]))
            journal.write(b"".join(map(_line, messages)))

        class Consumer(AsyncPushConsumer):
            def _begin(self, queue: MessageQueue, offset: int) -> Assigned:
                if queue.topic == TOPIC:
                    line = f"reads {queue.broker_name} {queue.queue_id} {offset}\n"
                    journal.write(line.encode())
                return super()._begin(queue, offset)

        async with Consumer(
            GROUP,
            listen,
            subscriptions={TOPIC: "*"},
            namesrv=namesrv,
            consume_from="first",
            consume_batch_size=32,
            rebalance_interval=2.0,
            persist_offset_interval=0.5,
        ):
            await ending.wait()


def _line(message: StoredMessage) -> bytes:
    where = f"{message.broker_name} {message.queue_id} {message.queue_offset}"
    return f"consumed {where} {message.body.decode()}\n".encode()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
