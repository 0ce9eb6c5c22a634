"""The producer: sends messages to wherever its topic lives, whatever happens to single brokers."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields, replace
from types import TracebackType
from typing import Any, Self

from rocketpipe.client.background import Background
from rocketpipe.client.checks import check_queue
from rocketpipe.client.encoded import Encoded
from rocketpipe.client.environment import Environment
from rocketpipe.client.hooks import Hooks, SendHook
from rocketpipe.client.instance import CheckTransaction, ClientInstance
from rocketpipe.client.lifecycle import InFlight, Lifecycle
from rocketpipe.client.many import Pack, packs
from rocketpipe.client.namespace import with_namespace
from rocketpipe.client.outcomes import Outcome, SendOutcomes
from rocketpipe.client.outgoing import Outgoing, Packer
from rocketpipe.client.queue_choice import Policy, policy_settings
from rocketpipe.client.recaller import Recaller
from rocketpipe.client.requester import Requester
from rocketpipe.client.selectors import Selector
from rocketpipe.client.sender import BeforeRepeat, Sender, Target
from rocketpipe.client.setting_checks import check_seconds
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.client.trace_hook import trace_hook
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import InvalidMessage, InvalidSetting, MQError, SendFailed
from rocketpipe.message import Message, MessageQueue, SendResult, StoredMessage

PROBE_INTERVAL = 1.0  # how often a policy is asked whom to probe; it knows when each is due
PROBE_TIMEOUT = 0.2  # Java's


class AsyncProducer:
    """Sends messages.

    async with AsyncProducer("order-service", namesrv="127.0.0.1:9876") as producer:
        result = await producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

    Settings are those of ProducerSettings, by name or as such an object.
    """

    # Who answers when a broker asks how a transaction of the group ended.
    _check_transaction: CheckTransaction | None = None

    def __init__(
        self,
        producer_group: str | ProducerSettings,
        *,
        hooks: Sequence[SendHook] = (),
        environment: Environment | None = None,
        **settings: Any,
    ) -> None:
        self.settings = producer_settings(producer_group, settings)
        self._environment = environment
        self._user_hooks = tuple(hooks)
        self._hooks = Hooks(hooks)
        self._lifecycle = Lifecycle(f"producer {self.settings.producer_group!r}")
        self._background = Background()
        self._in_flight = InFlight()

    async def start(self) -> None:
        """Get ready to send; a producer can be started once."""
        self._lifecycle.begin()
        settings = self.settings
        self._group = with_namespace(settings.namespace, settings.producer_group)
        async with AsyncExitStack() as ending:
            instance = ClientInstance.join(settings.client_settings(), self._environment)
            ending.push_async_callback(instance.leave)
            environment = instance.environment
            self._policy = policy_settings(settings.policy).build(environment.dice)
            instance.add_producer(self._group, self._check_transaction)
            ending.push_async_callback(instance.remove_producer, self._group)
            if settings.trace:
                self._hooks = Hooks((*self._user_hooks, trace_hook(settings, instance)))
            ending.push_async_callback(self._hooks.close)
            ending.push_async_callback(self._background.close)
            self._instance = instance
            self._packer = Packer(settings, instance.new_message_id, environment.clock.wall_ms)
            self._sender = Sender(settings, instance, self._policy, self._hooks)
            self._requester = Requester(instance, self._packer, self._sender)
            self._recaller = Recaller(settings, instance, self._hooks)
            if type(self._policy).brokers_to_probe is not Policy.brokers_to_probe:
                self._background.every(PROBE_INTERVAL, self._probe_brokers)
            self._ending = ending.pop_all()
        self._lifecycle.started()

    async def close(self) -> None:
        """Let the sends on their way end, then leave the brokers. Closing twice is no error."""
        if not self._lifecycle.close():
            return
        async with self._ending:  # all of it, even if our caller is cancelled
            # Each of them has a deadline, but for the work that a transaction's listener does.
            await self._in_flight.wait_none()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """By which brokers know the client this producer belongs to."""
        self._lifecycle.require_running()
        return self._instance.client_id

    def isolated(self) -> dict[str, float]:
        """The brokers that the policy avoids at present, and for how many seconds more.

        None under a policy that isolates nobody: round-robin, peak-ewma.
        """
        self._lifecycle.require_running()
        return dict(self._policy.isolated(asyncio.get_running_loop().time()))

    async def send(
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
        self._lifecycle.require_running()
        outgoing = self._packer.pack(message)
        return await self._deliver(outgoing, _target(message, queue, selector, arg), timeout)

    async def send_oneway(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: Any = None,
    ) -> None:
        """Hand the message over, once; whether a broker stores it, nobody will know."""
        self._lifecycle.require_running()
        outgoing = self._packer.pack(message)
        target = _target(message, queue, selector, arg)
        with self._in_flight:
            await self._sender.send_oneway(outgoing, target, timeout=self._timeout(timeout))

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Messages of one topic to one queue in one request: all of them are stored, or none."""
        self._lifecycle.require_running()
        batch = list(messages)
        outgoing = self._packer.pack_batch(batch)
        return await self._deliver(outgoing, _target(batch[0], queue, None, None), timeout)

    async def send_many(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> SendOutcomes:
        """A result or an error for each message, in order; the timeout is for each by itself.

        Neighbours of one topic go together as batches, several batches at a time. It takes from
        `messages` no faster than brokers take from it. An error of another kind, such as one that
        `messages` or a hook raises, ends it, once what is on its way has ended.
        """
        self._lifecycle.require_running()
        timeout = self._timeout(timeout)
        outcomes = SendOutcomes()
        failures: list[Exception] = []
        room = asyncio.Semaphore(self.settings.batches_in_flight_max)

        async def send_pack(pack: Pack, number: int) -> None:
            try:
                outcomes.settle(number, await self._send_pack(pack, timeout))
            except Exception as error:
                failures.append(error)
            finally:
                room.release()

        source = packs(messages, self.settings)
        async with asyncio.TaskGroup() as tasks:
            while True:
                await room.acquire()
                pack = None
                try:
                    self._lifecycle.require_running()  # it may have been closed meanwhile
                    pack = next(source, None)
                except Exception as error:
                    failures.append(error)
                if pack is None or failures:
                    break
                tasks.create_task(send_pack(pack, outcomes.expect(len(pack.messages))))
        if failures:
            raise failures[0]
        return outcomes

    async def send_encoded(
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
        self._lifecycle.require_running()
        outgoing = self._packer.pack_encoded(encoded)
        target = encoded.queue and check_queue("queue", encoded.queue, encoded.topic)
        return await self._deliver(outgoing, target, timeout, before_repeat)

    async def publish_queues(
        self, topic: str, *, timeout: float | None = None
    ) -> tuple[MessageQueue, ...]:
        """The queues that messages of this topic may go to now, in the order every client knows."""
        self._lifecycle.require_running()
        return await self._sender.publish_queues(topic, timeout=self._timeout(timeout))

    async def request(
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
        self._lifecycle.require_running()
        target = _target(message, queue, selector, arg)
        with self._in_flight:
            return await self._requester.request(message, target, timeout=self._timeout(timeout))

    async def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:
        """Take back a timed message, by the `recall_handle` of its SendResult, before its time.

        Returns the message's id; BrokerError when the broker can't, or does not recall (it has to
        be 5.3.2 or later, with recallMessageEnable).
        """
        self._lifecycle.require_running()
        with self._in_flight:
            return await self._recaller.recall(topic, recall_handle, timeout=self._timeout(timeout))

    async def _send_pack(self, pack: Pack, timeout: float) -> SendResult | list[Outcome]:
        messages = pack.messages
        if len(messages) == 1:
            return [await self._send_one(messages[0], timeout)]
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        try:
            self._lifecycle.require_running()
            outgoing = self._packer.pack_batch(messages, alike=pack.alike)
            return await self._deliver(outgoing, None, timeout)
        except (InvalidMessage, SendFailed) as error:
            left = deadline - now()
            is_illegal = (
                isinstance(error, InvalidMessage) or error.code == ResponseCode.MESSAGE_ILLEGAL
            )
            if left <= 0 or not is_illegal:
                return [error] * len(messages)
        except MQError as error:
            return [error] * len(messages)
        # One of them is not well, and the others shall not suffer for it.
        return await asyncio.gather(*(self._send_one(message, left) for message in messages))

    async def _send_one(self, message: Message, timeout: float) -> Outcome:
        try:
            return await self.send(message, timeout=timeout)
        except MQError as error:
            return error

    async def _probe_brokers(self) -> None:
        """Ask the brokers that the policy is unsure of whether they answer at all."""
        now = asyncio.get_running_loop().time

        async def probe(broker: str) -> None:
            reachable = await self._instance.is_reachable(broker, timeout=PROBE_TIMEOUT)
            self._policy.probed(broker, now(), reachable=reachable)

        await asyncio.gather(*map(probe, self._policy.brokers_to_probe(now())))

    async def _deliver(
        self,
        outgoing: Outgoing,
        target: Target,
        timeout: float | None,
        before_repeat: BeforeRepeat | None = None,
    ) -> SendResult:
        with self._in_flight:
            return await self._sender.send(
                outgoing, target, timeout=self._timeout(timeout), before_repeat=before_repeat
            )

    def _timeout(self, timeout: float | None) -> float:
        if timeout is None:
            return self.settings.send_timeout
        check_seconds("timeout", timeout)
        return timeout


def producer_settings(
    producer_group: str | ProducerSettings, settings: dict[str, Any]
) -> ProducerSettings:
    """The settings as a user gives them: all in one object, or by name."""
    known = {each.name for each in fields(ProducerSettings)}
    if unknown := settings.keys() - known:
        raise InvalidSetting(f"a producer has no setting {', '.join(sorted(unknown))}")
    if isinstance(producer_group, ProducerSettings):
        return replace(producer_group, **settings)
    return ProducerSettings(producer_group, **settings)


def _target(
    message: Message, queue: MessageQueue | None, selector: Selector | None, arg: Any
) -> Target:
    if queue is not None and selector is not None:
        raise InvalidMessage("give a queue or a selector, not both")
    if selector is not None:
        return lambda queues: check_queue(
            "the selector's queue", selector(queues, message, arg), message.topic
        )
    return None if queue is None else check_queue("queue", queue, message.topic)
