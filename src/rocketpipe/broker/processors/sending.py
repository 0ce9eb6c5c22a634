"""Sends: one message or a batch, in either spelling of the header, with or without an answer."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from rocketpipe.broker.checks import no_such_group
from rocketpipe.broker.hosts import packed_host
from rocketpipe.broker.names import RETRY_PREFIX, TIMER_TOPIC, TOPIC_CHARACTERS_MAX, dlq_topic
from rocketpipe.broker.plain_sends import PlainSends
from rocketpipe.broker.putting import CODES, Stored
from rocketpipe.broker.store.values import MessageDraft, PutResult, PutStatus
from rocketpipe.broker.waiting import CanNotWait, timer_remark
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.topics import TopicConfig, TopicFilterType
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.java_text import read_bool, read_integer, write_bool
from rocketpipe.wire.message_id import RecallHandle, offset_message_ids
from rocketpipe.wire.naming import wire_name
from rocketpipe.wire.properties import (
    DELAY,
    MSG_REGION,
    REAL_TOPIC,
    TIMER_OUT_MS,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from rocketpipe.wire.requests.sending import SendMessage, SendMessageV2
from rocketpipe.wire.sys_flag import MULTI_TAGS

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

_V3_4_9 = 121  # the first release whose clients say how often a message may be consumed again


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = SendProcessor(broker)
    send_v1 = broker.flow_control.guard(processor.send_v1)
    send_v2 = broker.flow_control.guard(processor.send_v2)
    if not broker.access.is_on:  # there each request is to be looked at
        broker.plain_sends = PlainSends(broker, processor.answer, processor.answer_fields).take
    return {
        RequestCode.SEND_MESSAGE: send_v1,
        RequestCode.SEND_MESSAGE_V2: send_v2,
        RequestCode.SEND_BATCH_MESSAGE: send_v2,
    }


class Send(NamedTuple):
    """The header of a send, read by hand: the generic reader takes ten times as long."""

    producer_group: str
    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    is_batch: bool
    default_topic: str
    default_topic_queue_nums: int


# Most numbers of a header are few and small, and the time is the same for all of a millisecond.
_int32 = lru_cache(maxsize=1024)(partial(read_integer, bits=32))
_int64 = lru_cache(maxsize=1024)(partial(read_integer, bits=64))

# From the names of V1 to the letters of V2.
_LETTERS = {wire_name(name, None): letter for name, letter in SendMessageV2.short_names.items()}


def read_send(request: RemotingCommand, *, is_v1: bool) -> Send:
    """The header of a send in either spelling, or MalformedHeader."""
    ext = request.ext_fields
    if is_v1:
        ext = {letter: ext[name] for name, letter in _LETTERS.items() if name in ext}
    get = ext.get
    try:
        times = get("l")
        return Send(
            ext["a"],
            ext["b"],
            _int32(ext["e"]),
            _int32(ext["f"]),
            _int64(ext["g"]),
            _int32(ext["h"]),
            get("i", ""),
            _int32(get("j", "0")),
            read_bool(get("k", "false")),
            _int32(times) if times is not None else None,
            read_bool(get("m", "false")),
            ext["c"],
            _int32(ext["d"]),
        )
    except (KeyError, ValueError):
        # The generic reader finds the same fault and says it in the words of all others.
        header = SendMessage if is_v1 else SendMessageV2
        header.from_ext_fields(request.ext_fields)
        raise


def no_body() -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, "the body of the message is missing")


class SendProcessor:
    """Checks a message, makes what is to be stored of it, and answers when the store has it."""

    def __init__(self, broker: "Broker") -> None:
        self._settings = broker.settings
        self._checks = broker.checks
        self._topics = broker.topics
        self._groups = broker.groups
        self._queue_locks = broker.queue_locks
        self._store = broker.store
        self._puts = broker.puts
        self._flow_control = broker.flow_control
        self._treatment = broker.property_treatment
        self._transactions = broker.transactions
        self._store_host = broker.store_host
        self._dice = broker.dice
        self._message_id_prefix = broker.store_host.hex().upper()
        # What every answer of a send that got as far as the checks carries.
        self.answer_fields = {
            MSG_REGION: broker.settings.region_id,
            TRACE_ON: write_bool(broker.settings.trace_on),
        }

    def send_v1(self, connection: Connection, request: RemotingCommand) -> None:
        self._send(connection, request, read_send(request, is_v1=True))

    def send_v2(self, connection: Connection, request: RemotingCommand) -> None:
        self._send(connection, request, read_send(request, is_v1=False))

    def _send(self, connection: Connection, request: RemotingCommand, send: Send) -> None:
        if not request.body:
            raise no_body()
        try:
            config, queue_id = self._admit(connection, send)
            if send.is_batch:
                self._put_batch(connection, request, send, config, queue_id)
            else:
                self._put(connection, request, send, config, queue_id)
        except Refusal as refusal:
            refusal.ext_fields = self.answer_fields
            raise

    def _admit(self, connection: Connection, send: Send) -> tuple[TopicConfig, int]:
        """The topic and the queue to put the message into, or a Refusal."""
        config = self._checks.topic_to_send(
            send.topic,
            send.queue_id,
            default_topic=send.default_topic,
            default_topic_queue_nums=send.default_topic_queue_nums,
            unit_mode=send.unit_mode,
            producer=connection.address,
        )
        if send.queue_id >= 0:
            return config, send.queue_id
        if config.write_queue_nums < 1:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"topic[{config.topic_name}] has no queue to write to"
            )
        return config, self._dice.randrange(config.write_queue_nums)

    def _put(
        self,
        connection: Connection,
        request: RemotingCommand,
        send: Send,
        config: TopicConfig,
        queue_id: int,
    ) -> None:
        topic = send.topic
        properties = self._treatment.treat(send.properties)
        text = properties.text
        if topic.startswith(RETRY_PREFIX) and self._is_dead(request, send):
            topic, queue_id = self._dead_letter_topic(send), 0
            text = encode_properties({**decode_properties(text), DELAY: "-1"})
        draft = MessageDraft(
            topic,
            queue_id,
            request.body,
            text,
            send.born_timestamp,
            packed_host(connection.address),
            self._store_host,
            send.flag,
            self._sys_flag(send, config),
            send.reconsume_times,
            0,
            properties.wait_store_ok,
        )
        put: Callable[[MessageDraft, Stored], None] = self._puts.put_now
        answer = partial(self.answer, connection, request, queue_id, properties.unique_id, None)
        if properties.decoded is not None:
            if self._is_half(send, properties.decoded):
                put = self._transactions.prepare
            else:
                draft = self._placed(draft)
                handle = self._recall_handle(draft, properties.unique_id)
                answer = partial(
                    self.answer, connection, request, queue_id, properties.unique_id, handle
                )
        self._flow_control.unanswered += 1
        put(draft, answer)
        request.body = b""  # the draft has it, and is forgotten before the answer is given

    def _is_half(self, send: Send, properties: dict[str, str]) -> bool:
        """Whether it is a half message, which must be allowed, or a Refusal."""
        has_delay = properties.get(DELAY, "0") not in ("0", "-1")
        # A message of a consumer's that was a half message once, from clients before 4.6.1.
        is_retried = send.reconsume_times > 0 and has_delay
        if read_bool(properties.get(TRAN_MSG, "")) and not is_retried:
            if self._settings.reject_transaction_message:
                raise Refusal(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{self._settings.host}] sending transaction message is forbidden",
                )
            return True
        return False

    def _placed(self, draft: MessageDraft) -> MessageDraft:
        """The draft in the place where it waits, if it asks for a delay; or a Refusal."""
        try:
            return self._puts.placed(draft)
        except CanNotWait as error:
            result = PutResult(error.status, reason=str(error))
            raise Refusal(CODES[error.status], self._remark(result)) from error

    def _recall_handle(self, draft: MessageDraft, unique_id: str) -> str | None:
        """What takes a timer back, as long as it waits (attachRecallHandle)."""
        if draft.topic != TIMER_TOPIC:
            return None
        properties = decode_properties(draft.properties)
        topic = properties[REAL_TOPIC]
        if topic.startswith(RETRY_PREFIX):
            return None
        # A slot ends before its next millisecond: a recall for then falls into the same slot.
        timestamp_ms = int(properties[TIMER_OUT_MS]) + 1
        broker_name = self._settings.broker_name
        try:
            return RecallHandle(topic, broker_name, timestamp_ms, unique_id).encode()
        except InvalidMessage:  # somebody's own id, with a space: nothing would find it
            return None

    def _put_batch(
        self,
        connection: Connection,
        request: RemotingCommand,
        send: Send,
        config: TopicConfig,
        queue_id: int,
    ) -> None:
        if len(send.topic) > TOPIC_CHARACTERS_MAX:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(send.topic)}"
            )
        if send.topic.startswith(RETRY_PREFIX):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {send.topic}",
            )
        properties = decode_properties(send.properties)
        self._flow_control.unanswered += 1
        self._puts.put_batch(
            MessageDraft(
                send.topic,
                queue_id,
                request.body,
                "",
                send.born_timestamp,
                packed_host(connection.address),
                self._store_host,
                send.flag,
                self._sys_flag(send, config),
                send.reconsume_times,
                0,
                properties.get(WAIT, "true").lower() == "true",
            ),
            partial(self.answer, connection, request, queue_id, properties.get(UNIQ_KEY), None),
        )
        request.body = b""

    def _sys_flag(self, send: Send, config: TopicConfig) -> int:
        if config.topic_filter_type is TopicFilterType.MULTI_TAG:
            return send.sys_flag | MULTI_TAGS
        return send.sys_flag

    def _is_dead(self, request: RemotingCommand, send: Send) -> bool:
        """Whether a message that a consumer sends again has come too often, or is of an orderly
        group, which sends one only when it has given it up."""
        name = send.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(name)
        if group is None:
            raise no_such_group(name)
        times_max = group.retry_max_times
        if request.version >= _V3_4_9 and send.max_reconsume_times is not None:
            times_max = send.max_reconsume_times
        return send.reconsume_times > times_max or self._queue_locks.is_any_locked(name)

    def _dead_letter_topic(self, send: Send) -> str:
        topic = dlq_topic(send.topic.removeprefix(RETRY_PREFIX))
        if self._topics.create_inner(topic) is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        return topic

    # Answering.

    def answer(
        self,
        connection: Connection,
        request: RemotingCommand,
        queue_id: int,
        unique_id: str | None,
        recall_handle: str | None,
        result: PutResult,
        code: ResponseCode,
    ) -> None:
        """Tell who sent a message what became of it."""
        self._flow_control.unanswered -= 1
        if not self._topics.saved.is_saved:
            # A topic that was created for this message must outlive us as the message does.
            args = (connection, request, queue_id, unique_id, recall_handle, result, code)
            self._topics.saved.when_saved(partial(self._answer_now, *args))
        else:
            self._answer_now(connection, request, queue_id, unique_id, recall_handle, result, code)

    def _answer_now(
        self,
        connection: Connection,
        request: RemotingCommand,
        queue_id: int,
        unique_id: str | None,
        recall_handle: str | None,
        result: PutResult,
        code: ResponseCode,
    ) -> None:
        if not result.is_stored:
            remark = self._remark(result)
            connection.answer(request, request.answer(code, remark, self.answer_fields))
            return
        fields = {
            "msgId": offset_message_ids(self._message_id_prefix, result.physical_offsets),
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
            **self.answer_fields,
        }
        if unique_id:
            fields["transactionId"] = unique_id
        if recall_handle:
            fields["recallHandle"] = recall_handle
        connection.answer(request, request.answer(code, None, fields))

    def _remark(self, result: PutResult) -> str:
        """Apache's words for a message that was not stored (handlePutMessageResult)."""
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            limit = self._settings.store.message_bytes_max
            return (
                "the message is illegal, maybe msg body or properties length not matched. "
                f"msg body length limit {limit}B, msg properties length limit 32KB."
            )
        if remark := timer_remark(result.status, self._settings):
            return remark
        if result.status is PutStatus.OS_PAGE_CACHE_BUSY:
            return "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        used = 100 * self._store.disk_used_ratio()
        return (
            "service not available now. It may be caused by one of the following reasons: "
            f"the broker's disk is full [CL: {used:5.2f} CQ: {used:5.2f} INDEX: {used:5.2f}], "
            "messages are put to the slave, message store has been shut down, etc."
        )
