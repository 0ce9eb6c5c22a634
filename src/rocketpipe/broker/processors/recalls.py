"""Recall: a timer is taken back before its time, by another timer in the same slot."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.hosts import packed_host
from rocketpipe.broker.store.values import MessageDraft
from rocketpipe.broker.transactions import NOT_SET
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.java_text import read_integer
from rocketpipe.wire.message_id import recall_handle_parts
from rocketpipe.wire.properties import (
    BORN_TIMESTAMP,
    MSG_REGION,
    PGROUP,
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    encode_properties,
)
from rocketpipe.wire.requests.sending import RecallMessage

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

RECALL_TAG = "_RECALL_TAG_"
_UNAVAILABLE = "recall failed, broker service not available"


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    return {RequestCode.RECALL_MESSAGE: _RecallProcessor(broker).recall}


class _RecallProcessor:
    """RecallMessageProcessor: its checks, in its order and its words."""

    def __init__(self, broker: "Broker") -> None:
        self._settings = broker.settings
        self._topics = broker.topics
        self._puts = broker.puts
        self._clock = broker.clock
        self._store_host = broker.store_host
        self._base_fields = {MSG_REGION: broker.settings.region_id}

    async def recall(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Store what takes the message back. Whether there is one shows at its time alone."""
        header = RecallMessage.from_ext_fields(request.ext_fields)
        try:
            self._check_state(header.topic)
            timestamp, unique_id = self._read_handle(header)
            draft = self._draft(header, timestamp, unique_id, packed_host(connection.address))
            result = await self._puts.put_and_wait(draft)
            if not result.is_stored:
                raise Refusal(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")
        except Refusal as refusal:
            refusal.ext_fields = self._base_fields
            raise
        fields = {"msgId": unique_id, **self._base_fields}
        return request.answer(ResponseCode.SUCCESS, NOT_SET, fields)

    def _check_state(self, topic: str) -> None:
        settings = self._settings
        if not settings.recall_message_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if settings.is_slave:
            raise Refusal(ResponseCode.SLAVE_NOT_AVAILABLE, _UNAVAILABLE)
        is_writable = Perm.WRITE in settings.broker_permission
        if self._clock.wall_ms() < settings.start_accept_send_request_timestamp_ms or not (
            is_writable or settings.allow_recall_when_broker_not_writeable
        ):
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        if topic not in self._topics.table:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist"
            )

    def _read_handle(self, header: RecallMessage) -> tuple[str, str]:
        """The time and the unique id of the message, or a Refusal."""
        try:
            # Java takes more than five parts, and so do we.
            version, topic, broker_name, timestamp, unique_id = recall_handle_parts(
                header.recall_handle
            )[:5]
        except ValueError as error:
            raise _illegal("recall handle is invalid") from error
        if version != "v1":
            raise _illegal("recall handle is invalid")
        if topic != header.topic:
            raise _illegal("recall failed, topic not match")
        if broker_name != self._settings.broker_name:
            raise _illegal(_UNAVAILABLE)
        try:
            left_ms = read_integer(timestamp, 64) - self._clock.wall_ms()
        except ValueError:
            left_ms = 0
        if not 0 < left_ms < self._settings.timer_max_delay * 1000:
            raise _illegal("recall failed, timestamp invalid")
        return timestamp, unique_id

    def _draft(
        self, header: RecallMessage, timestamp: str, unique_id: str, born_host: bytes
    ) -> MessageDraft:
        now_ms = self._clock.wall_ms()
        properties = {
            TIMER_DEL_UNIQKEY: unique_id,
            UNIQ_KEY: unique_id,
            TIMER_DELIVER_MS: timestamp,
            BORN_TIMESTAMP: str(now_ms),
            PGROUP: header.producer_group or "",
            TAGS: RECALL_TAG,
        }
        return MessageDraft(
            topic=header.topic,
            queue_id=0,
            body=b"0",
            properties=encode_properties(properties),
            born_timestamp_ms=now_ms,
            born_host=born_host,
            store_host=self._store_host,
        )


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
