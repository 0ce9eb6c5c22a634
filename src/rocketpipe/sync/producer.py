"""The blocking producers."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any

from rocketpipe.client.bulk import AsyncBulkSender
from rocketpipe.client.encoded import Encoded
from rocketpipe.client.environment import Environment
from rocketpipe.client.hooks import SendHook
from rocketpipe.client.many import packs
from rocketpipe.client.outcomes import SendOutcomes
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.client.selectors import Selector
from rocketpipe.client.sender import BeforeRepeat
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.client.transaction import AsyncTransactionProducer, TransactionListener
from rocketpipe.message import (
    Message,
    MessageQueue,
    SendResult,
    StoredMessage,
    TransactionResult,
)
from rocketpipe.sync.client import BlockingClient


class Producer(BlockingClient):
    """Sends messages. Every method is AsyncProducer's of the same name, and blocks.

    with Producer("order-service", namesrv="127.0.0.1:9876") as producer:
        result = producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

    Settings are those of ProducerSettings, by name or as such an object. Many threads may share it.
    """

    def __init__(
        self,
        producer_group: str | ProducerSettings,
        *,
        hooks: Sequence[SendHook] = (),
        environment: Environment | None = None,
        **settings: Any,
    ) -> None:
        self._wrap(AsyncProducer(producer_group, hooks=hooks, environment=environment, **settings))

    def _wrap(self, producer: AsyncProducer) -> None:
        super().__init__(producer)
        self._async = producer
        self.settings = producer.settings
        self._room = threading.Semaphore(self.settings.async_sends_in_flight_max)

    @property
    def client_id(self) -> str:
        """By which brokers know the client this producer belongs to."""

        async def client_id() -> str:
            return self._async.client_id

        return self._call(client_id())

    def isolated(self) -> dict[str, float]:
        """The brokers that the policy avoids at present, and for how many seconds more.

        None under a policy that isolates nobody: round-robin, peak-ewma.
        """

        async def isolated() -> dict[str, float]:
            return self._async.isolated()

        return self._call(isolated())

    def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> SendResult:
        """Where the message was stored, or SendFailed with every attempt there was.

        With a queue, or a selector that is given the topic's queues, the message and `arg`, it goes
        to that queue and no other.
        """
        return self._call(
            self._async.send(message, timeout=timeout, queue=queue, selector=selector, arg=arg)
        )

    def send_async(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> "Future[SendResult]":
        """A Future of what `send` returns; it may be cancelled.

        It blocks only while `async_sends_in_flight_max` of them are on their way.
        """
        self._require_usable()
        self._room.acquire()
        try:
            future = self._submit(
                self._async.send(message, timeout=timeout, queue=queue, selector=selector, arg=arg)
            )
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def send_oneway(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> None:
        """Hand the message over, once; whether a broker stores it, nobody will know."""
        self._call(
            self._async.send_oneway(
                message, timeout=timeout, queue=queue, selector=selector, arg=arg
            )
        )

    def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Messages of one topic to one queue in one request: all of them are stored, or none."""
        # A list, as what the caller iterates over may block.
        return self._call(self._async.send_batch(list(messages), timeout=timeout, queue=queue))

    def send_many(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> SendOutcomes:
        """A result or an error for each message, in order; the timeout is for each by itself.

        Neighbours of one topic go together as batches, several batches at a time. It takes from
        `messages` no faster than brokers take from it.
        """
        # Taken and packed here and not on the loop, since what the caller iterates over may block.
        # Each pack is a send_many of its own; the first, of none, hears whether it may be used.
        outcomes = self._call(self._async.send_many((), timeout=timeout))
        sending: deque[Future[SendOutcomes]] = deque()
        try:
            try:
                for pack in packs(messages, self.settings):
                    if len(sending) == self.settings.batches_in_flight_max:
                        outcomes.extend(sending[0].result())
                        sending.popleft()
                    send = self._async.send_many(pack.messages, timeout=timeout)
                    sending.append(self._submit(send))
            except Exception:  # the caller's own; what is on its way may still arrive
                wait(sending)
                raise
            for each in sending:
                outcomes.extend(each.result())
        except BaseException:
            for each in sending:
                each.cancel()
            raise
        return outcomes

    def send_encoded(
        self,
        encoded: Encoded,
        *,
        timeout: float | None = None,
        before_repeat: BeforeRepeat | None = None,
    ) -> SendResult:
        """Where a message or batch was stored that the caller has encoded, as `send` tells it.

        For writers of whole columns: see BulkSender, which sends many of these. `before_repeat` is
        awaited before any attempt that may store it once more.
        """
        sending = self._async.send_encoded(encoded, timeout=timeout, before_repeat=before_repeat)
        return self._call(sending)

    def publish_queues(
        self, topic: str, *, timeout: float | None = None
    ) -> tuple[MessageQueue, ...]:
        """The queues that messages of this topic may go to now, in the order every client knows."""
        return self._call(self._async.publish_queues(topic, timeout=timeout))

    def request(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> StoredMessage:
        """The reply of whoever consumes the message (see `reply_message`).

        SendFailed when the request could not be sent, ReplyTimeout when no reply came; the timeout
        is for both together.
        """
        return self._call(
            self._async.request(message, timeout=timeout, queue=queue, selector=selector, arg=arg)
        )

    def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:
        """Take back a timed message, by the `recall_handle` of its SendResult, before its time.

        Returns the message's id; BrokerError when the broker can't, or does not recall (it has to
        be 5.3.2 or later, with recallMessageEnable).
        """
        return self._call(self._async.recall(topic, recall_handle, timeout=timeout))


# What is being sent while the next batch is read and encoded: enough that neither waits for the
# other, and all that is kept in memory.
BATCHES_AHEAD = 2


class BulkSender:
    """AsyncBulkSender for one thread that goes on encoding while it sends."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._async = AsyncBulkSender(producer._async)

    def send_async(self, parcels: Sequence[Encoded]) -> "Future[list[SendResult]]":
        """A future of what `AsyncBulkSender.send` returns; the calls are obeyed in their order."""
        return self._producer._submit(self._async.send(parcels))

    def send_each(self, batches: Iterable[Sequence[Encoded]]) -> Iterator[list[SendResult]]:
        """What `AsyncBulkSender.send` returns for each, in order, a few behind what is taken."""
        sending: deque[Future[list[SendResult]]] = deque()
        for parcels in batches:
            sending.append(self.send_async(parcels))
            if len(sending) > BATCHES_AHEAD:
                yield sending.popleft().result()
        for each in sending:
            yield each.result()


class TransactionProducer(Producer):
    """A producer that can also send in transactions.

    with TransactionProducer("order-service", listener, namesrv="127.0.0.1:9876") as producer:
        result = producer.send_in_transaction(Message("orders", b"..."), order)
    """

    def __init__(
        self, producer_group: str | ProducerSettings, listener: TransactionListener, **others: Any
    ) -> None:
        self._transactions = AsyncTransactionProducer(producer_group, listener, **others)
        self._wrap(self._transactions)

    def send_in_transaction(
        self, message: Message, arg: Any = None, *, timeout: float | None = None
    ) -> TransactionResult:
        """Where the half message was stored and how the transaction ended, or SendFailed.

        The listener gets the message and `arg` if the broker has it safe (SEND_OK); with any other
        status the transaction is rolled back. The timeout is for sending.
        """
        return self._call(self._transactions.send_in_transaction(message, arg, timeout=timeout))
