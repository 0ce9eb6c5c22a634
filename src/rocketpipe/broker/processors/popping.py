"""POP: messages out of any queue, each of which is acknowledged by itself; Apache's checks."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.checks import FAQ
from rocketpipe.broker.message_filter import (
    EVERYTHING,
    MessageFilter,
    requested_filter,
    unparsable_filter,
)
from rocketpipe.broker.pop.checkpoints import Key, QueueOf
from rocketpipe.broker.pop.held_pops import HeldPop, HeldPops
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.pop import BatchAck, BatchAckRequest
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import TopicConfig
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.pop_receipt import ORDERED, Receipt, real_topic
from rocketpipe.wire.requests.pop import (
    AckMessage,
    ChangeInvisibleTimeReply,
    ChangeMessageInvisibletime,
    Notification,
    NotificationReply,
    PollingInfo,
    PollingInfoReply,
    PopMessage,
    PopMessageReply,
)

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

MESSAGES_MAX = 32
TOO_LATE_MS = 500  # after its time, nobody waits for the answer any more
NEARLY_OVER_MS = 50
NOTHING = "NO_MESSAGE_IN_QUEUE"
NOTHING_POPPED = PopMessageReply(pop_time=0, invisible_time=0, revive_qid=0, rest_num=0)


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _PopProcessor(broker)
    return {
        RequestCode.POP_MESSAGE: processor.pop,
        RequestCode.NOTIFICATION: processor.wait_for_messages,
        RequestCode.POLLING_INFO: processor.polling_info,
        RequestCode.ACK_MESSAGE: processor.acknowledge,
        RequestCode.BATCH_ACK_MESSAGE: processor.acknowledge_many,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME: processor.change_invisible_time,
    }


class _PopProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._settings = broker.settings
        self._topics = broker.topics
        self._groups = broker.groups
        self._store = broker.store
        self._clock = broker.clock
        self._rates = broker.rates
        self._part = broker.pop
        self._pops = broker.pop.pops

    # Messages, and whether there are any.

    async def pop(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self._give_birth(request)
        wanted = PopMessage.from_ext_fields(request.ext_fields)
        self._refuse_on_slave()
        if self._clock.wall_ms() - wanted.born_time - wanted.poll_time > TOO_LATE_MS:
            remark = f"the broker[{self._settings.host}] pop message is timeout too much"
            fields = NOTHING_POPPED.to_ext_fields()
            return request.answer(ResponseCode.POLLING_TIMEOUT, remark, fields)
        while True:
            # Once more each time: much may have changed while it waited.
            self._check_broker("pop message")
            if wanted.max_msg_nums > MESSAGES_MAX:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER,
                    f"the broker[{self._settings.host}] pop message's num is greater than 32",
                )
            message_filter = self._admit(wanted, connection)
            answer = await self._pops.pop(wanted, message_filter)
            group, topic, queue_id = wanted.consumer_group, wanted.topic, wanted.queue_id
            if answer.records:
                self._rates.read(group, topic, answer.messages)
                if answer.header.rest_num:
                    self._part.held.wake_one(topic, group, queue_id)
                fields = answer.header.to_ext_fields()
                return request.answer(ResponseCode.SUCCESS, "FOUND", fields, answer.records)
            held = HeldPop(connection, request, topic, group, queue_id, message_filter)
            code = self._may_hold(self._part.held, held, wanted)
            if code is not None:
                fields = answer.header.to_ext_fields()
                return request.answer(code, NOTHING, fields)
            self._part.held.hold(held, self._ms_left(wanted) / 1000)
            if answer.header.rest_num:  # of messages that it does not want: look further at once
                self._part.held.wake_one(topic, group, queue_id)
            try:
                await held.woken
            except asyncio.CancelledError:  # its connection is lost: what woke it is for another
                self._part.held.wake_one(topic, group, queue_id)
                raise

    async def wait_for_messages(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        self._give_birth(request)
        wanted = Notification.from_ext_fields(request.ext_fields)
        group, topic, queue_id = wanted.consumer_group, wanted.topic, wanted.queue_id
        while True:
            self._check_broker("peeking message")
            self._admit(wanted, connection)
            has_messages = self._pops.has_messages(
                group,
                topic,
                queue_id,
                is_ordered=bool(wanted.order),
                attempt_id=wanted.attempt_id,
            )
            held = HeldPop(connection, request, topic, group, queue_id, EVERYTHING)
            code = self._may_hold(self._part.held_questions, held, wanted)
            if has_messages or code is not None:
                is_full = not has_messages and code == ResponseCode.POLLING_FULL
                reply = NotificationReply(has_msg=has_messages, polling_full=is_full)
                return request.answer(ResponseCode.SUCCESS, None, reply.to_ext_fields())
            self._part.held_questions.hold(held, self._ms_left(wanted) / 1000)
            await held.woken

    def polling_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        wanted = PollingInfo.from_ext_fields(request.ext_fields)
        self._check_broker("peeking message")
        self._admit(wanted, connection)
        count = self._part.held.count(wanted.topic, wanted.consumer_group, wanted.queue_id)
        fields = PollingInfoReply(polling_num=count).to_ext_fields()
        return request.answer(ResponseCode.SUCCESS, None, fields)

    def _give_birth(self, request: RemotingCommand) -> None:
        """Clients that do not say when they asked, asked now."""
        if request.ext_fields.get("bornTime", "0") == "0":
            request.ext_fields["bornTime"] = str(self._clock.wall_ms())

    def _check_broker(self, what: str) -> None:
        if Perm.READ not in self._settings.broker_permission:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the broker[{self._settings.host}] {what} is forbidden"
            )

    def _admit(
        self, wanted: PopMessage | Notification | PollingInfo, connection: Connection
    ) -> MessageFilter:
        """What it wants, or a Refusal (PopMessageProcessor.processRequest)."""
        topic = self._topic(wanted.topic)
        if Perm.READ not in topic.perm:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the topic[{wanted.topic}] peeking message is forbidden",
            )
        if wanted.queue_id >= topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, _illegal_queue(topic, wanted.queue_id, connection)
            )
        group = self._groups.find(wanted.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{wanted.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {wanted.consumer_group}",
            )
        if isinstance(wanted, PopMessage) and wanted.exp:
            try:  # Apache's asks nobody here whether property filters are enabled
                return requested_filter(wanted.exp, wanted.exp_type)
            except InvalidSetting as error:
                raise unparsable_filter() from error
        return EVERYTHING

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.table.get(name)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}"
            )
        return topic

    def _may_hold(
        self, pops: HeldPops, held: HeldPop, wanted: PopMessage | Notification
    ) -> ResponseCode | None:
        """None if it may wait; else what to answer."""
        if wanted.poll_time <= 0 or self._ms_left(wanted) < NEARLY_OVER_MS:
            return ResponseCode.POLLING_TIMEOUT
        if pops.is_full(held.topic, held.group, held.queue_id):
            return ResponseCode.POLLING_FULL
        return None

    def _ms_left(self, wanted: PopMessage | Notification) -> int:
        return wanted.born_time + wanted.poll_time - self._clock.wall_ms()

    # Acknowledgements.

    async def acknowledge(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = AckMessage.from_ext_fields(request.ext_fields)
        self._refuse_on_slave()
        topic = self._topic(header.topic)
        self._check_queue(topic, header.queue_id, connection)
        first = self._store.min_offset(header.topic, header.queue_id)
        end = self._store.max_offset(header.topic, header.queue_id)
        if not first <= header.offset <= end:
            raise Refusal(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{header.topic}@{header.queue_id}, "
                f"commit:{header.offset}, store:{first}~{end}",
            )
        receipt = Receipt.parse(header.extra_info)
        queue = QueueOf(header.consumer_group, header.topic, header.queue_id)
        if receipt.is_ordered:
            self._acknowledge_ordered(queue, header.offset, receipt.pop_time)
        elif receipt.broker_name == self._settings.broker_name:
            key = Key(queue, receipt.start_offset, receipt.pop_time)
            await self._pops.acknowledge(key, [header.offset])
        return request.answer(ResponseCode.SUCCESS)

    async def acknowledge_many(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        batch = BatchAckRequest.decode(request.body) if request.body else BatchAckRequest()
        self._refuse_on_slave()
        if not batch.acks:
            raise Refusal(ResponseCode.NO_MESSAGE, "")
        for ack in batch.acks:
            await self._acknowledge_batch(ack)
        return request.answer(ResponseCode.SUCCESS)

    async def _acknowledge_batch(self, ack: BatchAck) -> None:
        topic = real_topic(ack.consumer_group, ack.topic, ack.retry)
        queue = QueueOf(ack.consumer_group, topic, ack.queue_id)
        offsets = list(ack.offsets())
        if ack.revive_queue_id == ORDERED:
            for offset in offsets:
                self._acknowledge_ordered(queue, offset, ack.pop_time)
        else:
            await self._pops.acknowledge(Key(queue, ack.start_offset, ack.pop_time), offsets)

    def _acknowledge_ordered(self, queue: QueueOf, offset: int, pop_time: int) -> None:
        if self._pops.acknowledge_ordered(queue, offset, pop_time):
            self._part.wake_for_queue(queue)

    async def change_invisible_time(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = ChangeMessageInvisibletime.from_ext_fields(request.ext_fields)
        self._refuse_on_slave()
        topic = self._topic(header.topic)
        self._check_queue(topic, header.queue_id, connection)
        first = self._store.min_offset(header.topic, header.queue_id)
        if not first <= header.offset < self._store.max_offset(header.topic, header.queue_id):
            raise Refusal(ResponseCode.NO_MESSAGE, "")
        receipt = Receipt.parse(header.extra_info)
        queue = QueueOf(header.consumer_group, header.topic, header.queue_id)
        pop_time, invisible_time = receipt.pop_time, header.invisible_time
        if receipt.is_ordered:
            invisible_time = self._pops.change_ordered_invisible_time(
                queue, header.offset, pop_time, invisible_time
            )
        else:
            key = Key(queue, receipt.start_offset, pop_time)
            pop_time = await self._pops.change_invisible_time(key, header.offset, invisible_time)
        reply = ChangeInvisibleTimeReply(
            pop_time=pop_time, invisible_time=invisible_time, revive_qid=receipt.revive_queue_id
        )
        return request.answer(ResponseCode.SUCCESS, None, reply.to_ext_fields())

    def _check_queue(self, topic: TopicConfig, queue_id: int, connection: Connection) -> None:
        if not 0 <= queue_id < topic.read_queue_nums:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, _illegal_queue(topic, queue_id, connection))

    def _refuse_on_slave(self) -> None:
        # Checkpoints are records of the log, which only a master writes.
        if self._settings.is_slave:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "a slave has nothing to pop: ask its master")


def _illegal_queue(topic: TopicConfig, queue_id: int, connection: Connection) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.address}]"
    )
