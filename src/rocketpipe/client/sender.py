"""The send kernel: does what the send flow asks for, attempt by attempt, and tells how it ended."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from rocketpipe.client.hooks import Hooks, SendContext
from rocketpipe.client.instance import ClientInstance, vip_address
from rocketpipe.client.late_result import LateResult
from rocketpipe.client.namespace import with_namespace, without_namespace
from rocketpipe.client.outgoing import Outgoing
from rocketpipe.client.queue_choice import Choice, Outcome, Policy, policy_name
from rocketpipe.client.route import TopicRoute
from rocketpipe.client.routes import Template
from rocketpipe.client.send_flow import (
    Choose,
    Ended,
    Look,
    Pause,
    Try,
    blame,
    is_surely_not_stored,
    may_retry,
    send_flow,
    with_attempts,
)
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    MQError,
    NoRoute,
    RequestTimeout,
    SendFailed,
)
from rocketpipe.message import Attempt, MessageQueue, SendResult, SendStatus
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.unanswered import Late
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.java_text import read_integer
from rocketpipe.wire.properties import MSG_REGION, TRACE_ON
from rocketpipe.wire.requests.sending import SendMessageReply

DEFAULT_REGION = "DefaultRegion"

# Where to: as the policy chooses, to this queue, or to the one selected of those there are.
Target = None | MessageQueue | Callable[[Sequence[MessageQueue]], MessageQueue]

BeforeRepeat = Callable[[], Awaitable[None]]

STATUSES: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class Sender:
    def __init__(
        self, settings: ProducerSettings, instance: ClientInstance, policy: Policy, hooks: Hooks
    ) -> None:
        self._settings = settings
        self._instance = instance
        self._policy = policy
        self._policy_name = policy_name(settings.policy)
        self._hooks = hooks
        self._now = asyncio.get_running_loop().time
        self._wall_ms = instance.environment.clock.wall_ms
        self._user_queues: dict[str, tuple[TopicRoute | None, tuple[MessageQueue, ...]]] = {}
        self._template = Template(settings.create_topic_key, settings.default_topic_queue_nums)

    async def route(self, topic: str, *, timeout: float) -> TopicRoute:
        """The route of a topic with queues to write to."""
        routes = self._instance.routes
        route = routes.find(topic)
        if route is None or not route.publish_queues:  # perhaps there are some by now
            route = await routes.refresh(topic, self._template, timeout=timeout)
        if not route.publish_queues:
            asked = tuple(self._instance.name_servers.addresses)
            raise NoRoute(topic, asked, "none of its brokers takes messages now")
        return route

    async def publish_queues(self, topic: str, *, timeout: float) -> tuple[MessageQueue, ...]:
        """The queues of a topic, both by the names that the user knows."""
        on_wire = with_namespace(self._settings.namespace, topic)
        return self._queues(await self.route(on_wire, timeout=timeout))

    async def send(
        self,
        outgoing: Outgoing,
        target: Target,
        *,
        timeout: float,
        before_repeat: BeforeRepeat | None = None,
    ) -> SendResult:
        """Send to the queue asked for, or to those the policy gives, until a broker has it.

        `before_repeat` is called before an attempt that may store it a second time, and what it
        raises ends the send.
        """
        now = self._now
        deadline = now() + timeout
        late = LateResult(deadline)
        flow = send_flow(
            outgoing.user_topic,
            await self._chooser(outgoing, target, timeout),
            now,
            deadline=deadline,
            settings=self._settings,
            dice=self._instance.environment.dice,
        )
        number = 0
        may_be_stored = False
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = flow.send(None)
                elif isinstance(step, Look):
                    await self._look(outgoing.topic, step.timeout)
                    step = flow.send(None)
                else:
                    number += 1
                    if may_be_stored and before_repeat is not None:
                        await before_repeat()
                    trying = self._try(outgoing, step, number, late)
                    # Before the second there is none that could be answered late.
                    ended = await (trying if number == 1 else late.or_end(trying))
                    may_be_stored = may_be_stored or not is_surely_not_stored(ended.attempt.error)
                    step = flow.send(ended)
        except StopIteration as done:
            return cast(SendResult, done.value)
        except SendFailed as failure:
            # All attempts are made, but one whose time was over may still be answered.
            errors = [attempt.error for attempt in failure.attempts]
            if any(isinstance(error, RequestTimeout) for error in errors) and may_retry(errors[-1]):
                result = await late.wait(deadline - now())
                if result is not None:
                    return with_attempts(result, failure.attempts)
            raise

    async def send_oneway(self, outgoing: Outgoing, target: Target, *, timeout: float) -> None:
        """Hand it over once. Whether it arrives, nobody knows."""
        deadline = self._now() + timeout
        choose = await self._chooser(outgoing, target, timeout)
        choice, _ = choose(())
        step = Try(choice, deadline - self._now())
        attempt, _ = await self._try(outgoing, step, 1, None)
        if attempt.error is not None:
            reason = "and a one-way send has only one"
            raise SendFailed(outgoing.user_topic, reason, [attempt]) from attempt.error

    async def _chooser(self, outgoing: Outgoing, target: Target, timeout: float) -> Choose:
        """How to choose a queue for this, given the brokers that failed already."""
        if isinstance(target, MessageQueue):
            given = Choice(target, "the caller chose the queue", ())
            return lambda _: (given, 1)
        route = await self.route(outgoing.topic, timeout=timeout)
        if target is not None:
            selected = Choice(target(self._queues(route)), "the selector chose the queue", ())
            return lambda _: (selected, 1)

        def choose(failed: Collection[str]) -> tuple[Choice, int]:
            nonlocal route
            # Between attempts the route may have changed; but not to one without queues.
            newer = self._instance.routes.find(outgoing.topic)
            if newer is not None and newer.publish_queues:
                route = newer
            choice = self._policy.choose(self._queues(route), self._now(), failed)
            return choice, len(route.publish_brokers)

        return choose

    async def _look(self, topic: str, timeout: float) -> None:
        try:
            await self._instance.routes.refresh(topic, self._template, timeout=timeout)
        except MQError:
            pass  # then it is tried where it was known to be

    def _queues(self, route: TopicRoute) -> tuple[MessageQueue, ...]:
        """The queues to write to, by the names the user knows."""
        if self._settings.namespace is None:
            return route.publish_queues
        known, queues = self._user_queues.get(route.topic, (None, ()))
        if known is not route:
            topic = without_namespace(self._settings.namespace, route.topic)
            queues = tuple(replace(queue, topic=topic) for queue in route.publish_queues)
            self._user_queues[route.topic] = (route, queues)
        return queues

    async def _try(
        self, outgoing: Outgoing, step: Try, number: int, late: LateResult | None
    ) -> Ended:
        """An attempt; without anybody to tell of a late answer, it is one-way."""
        choice = step.choice
        queue = choice.queue
        address = self._known_address(outgoing.topic, queue.broker_name)
        error: MQError | None = None
        result: SendResult | None = None
        context: SendContext | None = None
        if self._hooks:
            context = self._context(outgoing, queue, address, number, is_oneway=late is None)
            self._hooks.before(context)  # who forbids it here, forbids the whole send
        started, started_ms = self._now(), self._wall_ms()
        outcome = Outcome.ABANDONED  # unless we learn better: the caller may give up meanwhile
        self._policy.started(queue.broker_name, started)
        try:
            if late is not None and late.result is not None:
                raise asyncio.CancelledError  # answered while we paused
            if address is None:
                address = await self._learn_address(outgoing.topic, queue.broker_name, step.timeout)
            result = await self._exchange(
                outgoing, queue, address, started + step.timeout, late, context
            )
            if result is not None:  # handing over a one-way message tells nothing of the broker
                outcome = Outcome.OK
        except MQError as failure:
            # Whoever keeps the attempt would with a traceback keep the message's body as well.
            error = failure.with_traceback(None)
            outcome = blame(failure)
            if outcome is Outcome.REFUSED or isinstance(failure, ConnectFailed | ConnectionLost):
                self._instance.routes.refresh_soon(outgoing.topic)
        except asyncio.CancelledError:
            result = late.result if late is not None else None
            if result is None:
                error = ClientError("the caller gave up")
                raise
            error = ClientError(f"{result.queue.broker_name} answered an earlier attempt meanwhile")
        finally:
            ended = self._now()
            self._policy.finished(queue.broker_name, ended, ended - started, outcome)
            attempt = Attempt(
                queue,
                str(address) if address else None,
                started_ms,
                ended - started,
                result.status if result is not None and error is None else None,
                error,
                choice.reason,
                choice.passed_over,
            )
            if context is not None:
                context.address, context.attempt, context.result = attempt.address, attempt, result
                self._hooks.after(context)
        return Ended(attempt, result)

    def _known_address(self, topic: str, broker_name: str) -> Address | None:
        route = self._instance.routes.find(topic)
        address = route.master(broker_name) if route is not None else None
        return vip_address(address) if address and self._settings.vip_channel else address

    async def _learn_address(self, topic: str, broker_name: str, timeout: float) -> Address:
        await self._instance.routes.refresh(topic, self._template, timeout=timeout)
        address = self._known_address(topic, broker_name)
        if address is None:
            asked = tuple(self._instance.name_servers.addresses)
            raise NoRoute(topic, asked, f"broker {broker_name!r} has no master there")
        return address

    async def _exchange(
        self,
        outgoing: Outgoing,
        queue: MessageQueue,
        address: Address,
        deadline: float,
        late: LateResult | None,
        context: SendContext | None,
    ) -> SendResult | None:
        connections = self._instance.connections
        connection = connections.find(address) or await connections.get(
            address, timeout=deadline - self._now()
        )
        command = outgoing.command(queue)
        command.serialize_type = self._settings.remoting.serialize_type
        timeout = deadline - self._now()
        if late is None:
            await connection.send_oneway(command, timeout=timeout)
            return None
        hear = partial(self._hear_late, late, connection, outgoing, queue, context)
        try:
            answer = await connection.invoke(
                command, timeout=timeout, late=Late(hear, late.deadline)
            )
        except RequestTimeout:
            connections.suspect(connection)
            raise
        return self._judge(answer, connection, outgoing, queue)

    def _hear_late(
        self,
        late: LateResult,
        connection: Connection,
        outgoing: Outgoing,
        queue: MessageQueue,
        context: SendContext | None,
        answer: RemotingCommand,
    ) -> None:
        try:
            result = self._judge(answer, connection, outgoing, queue)
        except MQError:
            return  # another attempt may do better
        if context is not None and context.attempt is not None:
            # What it took to be answered; it ended before, so this is about its own record only.
            attempt = context.attempt
            took = (self._wall_ms() - attempt.started_ms) / 1000
            answered = attempt._replace(elapsed=took, status=result.status, error=None)
            self._hooks.answered_late(replace(context, attempt=answered, result=result))
        retries = self._settings.retry_another_broker_when_not_store_ok
        if result.status is SendStatus.SEND_OK or not retries:
            late.settle(result)

    def _judge(
        self,
        answer: RemotingCommand,
        connection: Connection,
        outgoing: Outgoing,
        queue: MessageQueue,
    ) -> SendResult:
        status = STATUSES.get(answer.code)
        if status is None:
            if answer.code == ResponseCode.GO_AWAY:
                self._instance.connections.retire(connection)
            raise BrokerError(answer.code, answer.remark, connection.address)
        fields = answer.ext_fields
        try:
            # By hand, which takes half as long: SendMessageReply, field by field.
            message_id, queue_id = fields["msgId"], read_integer(fields["queueId"], 32)
            queue_offset = read_integer(fields["queueOffset"], 64)
        except (KeyError, ValueError):
            SendMessageReply.from_answer(answer)  # finds the same fault, and says it
            raise
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        get = fields.get
        return SendResult(
            status,
            outgoing.message_id,
            message_id,
            queue,
            queue_offset,
            get("transactionId"),
            get("recallHandle"),
            get(MSG_REGION) or DEFAULT_REGION,
            get(TRACE_ON) != "false",
            (),
        )

    def _context(
        self,
        outgoing: Outgoing,
        queue: MessageQueue,
        address: Address | None,
        number: int,
        *,
        is_oneway: bool,
    ) -> SendContext:
        return SendContext(
            self._settings.producer_group,
            outgoing.messages,
            outgoing.message_id,
            len(outgoing.body),
            is_oneway,
            outgoing.is_transaction,
            number,
            queue,
            str(address) if address else None,
            policy=self._policy_name,
        )
