"""Sends that came together, taken at once: nearly all are plain, and cost a fraction that way.

What is plain, and what is done with it, is all said in `processors/sending.py`, one send at a time.
Here the frames are read, the records made and the answers written in C, many at once, and each
check that is of more than one message is made once. Where anything is unusual, a send is left
alone, and goes the ordinary way.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rocketpipe.broker.hosts import packed_host
from rocketpipe.broker.names import FORBIDDEN_TO_SEND, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketpipe.broker.putting import CODES
from rocketpipe.broker.sent_properties import WORDS
from rocketpipe.broker.store.values import PutResult, PutStatus
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.compiled import PlainSend, SentRow, compiled
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies.topics import TopicFilterType
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand
from rocketpipe.wire.message_id import offset_message_ids

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

# Tells who sent a message what became of it: `SendProcessor.answer`.
Answer = Callable[[Connection, RemotingCommand, int, str, None, PutResult, ResponseCode], None]

_WAITING = (TIMER_TOPIC, SCHEDULE_TOPIC)


class PlainSends:
    def __init__(self, broker: "Broker", answer: Answer, answer_fields: dict[str, str]) -> None:
        """`answer` is the ordinary way to answer one; `answer_fields` are in all answers."""
        self._settings = broker.settings
        self._topics = broker.topics
        self._store = broker.store
        self._store_host = broker.store_host
        self._slaves = broker.slaves
        self._faults = broker.faults
        self._flow_control = broker.flow_control
        self._suffix = broker.property_treatment.suffix
        self._answer = answer
        self._texts = answer_texts(broker.store_host, answer_fields)

    def take(self, connection: Connection, decoder: FrameDecoder, most: int) -> int:
        """Take the next requests, at most so many, as far as they are plain; how many they were."""
        if (
            self._faults
            or self._slaves.are_waited_for
            or self._settings.start_accept_send_request_timestamp_ms
            or not self._flow_control.may_take(most)
        ):
            return 0
        sends = decoder.plain_sends(most, WORDS, self._suffix)
        if not sends:
            return 0
        taken = self._store.put_plain(
            self._admitted(sends),
            packed_host(connection.address),
            self._store_host,
            partial(self._stored, connection, sends),
        )
        if taken:
            decoder.take_to(sends[taken - 1][0])
            self._flow_control.took(taken)
        return taken

    def _admitted(self, sends: Sequence[PlainSend]) -> Sequence[PlainSend]:
        """The first of them, up to one whose topic or queue has to be looked at."""
        queues_of: dict[str, int] = {}
        for number, send in enumerate(sends):
            topic, queue_id = send[2], send[3]
            queues = queues_of.get(topic)
            if queues is None:
                queues = queues_of[topic] = self._plain_queues(topic)
            if queue_id >= queues:
                return sends[:number]
        return sends

    def _plain_queues(self, topic: str) -> int:
        """How many queues of the topic take any message; 0 if it is not that plain."""
        config = self._topics.table.get(topic)
        if (
            config is None
            or topic in FORBIDDEN_TO_SEND
            or topic in _WAITING
            or topic.startswith(RETRY_PREFIX)
            or config.topic_filter_type is TopicFilterType.MULTI_TAG
            or self._topics.is_order(topic)
        ):
            return 0
        return max(config.write_queue_nums, config.read_queue_nums)

    def _stored(
        self,
        connection: Connection,
        sends: Sequence[PlainSend],
        rows: list[SentRow],
        result: PutResult,
    ) -> None:
        if result.status is PutStatus.PUT_OK and self._topics.saved.is_saved and not self._faults:
            assert compiled is not None
            self._flow_control.unanswered -= len(rows)
            connection.answer_plainly(compiled.write_sent(rows, *self._texts))
            return
        for send, (opaque, place, queue_id, offset, unique_id) in zip(sends, rows, strict=False):
            request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, {"b": send[2]}, opaque=opaque)
            if result.is_stored:
                result = result._replace(physical_offsets=(place,), queue_offset=offset)
            self._answer(
                connection, request, queue_id, unique_id, None, result, CODES[result.status]
            )


def answer_texts(store_host: bytes, fields: dict[str, str]) -> tuple[bytes, bytes, bytes, bytes]:
    """What all answers have in common, cut where they differ."""
    prefix = store_host.hex().upper()
    differing = {
        "msgId": offset_message_ids(prefix, (0,)),
        "queueId": "0",
        "queueOffset": "0",
    }
    opaque = 0x7FFF_FFFF
    answer = RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=opaque).answer(
        ResponseCode.SUCCESS, None, {**differing, **fields, "transactionId": ""}
    )
    first, mark, rest = answer.encode()[8:].partition(b'%016X","queueId":"0","queueOffset":"0"' % 0)
    assert mark
    # Within a text quotes are escaped, so this can be nowhere else.
    second, mark, rest = rest.partition(b'"transactionId":"')
    third, opaque_mark, fourth = rest.partition(b"%d" % opaque)
    assert mark
    assert opaque_mark
    return first, second + mark, third, fourth
