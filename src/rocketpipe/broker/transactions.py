"""Transactions: half messages that no consumer sees, until their producer says how it ended.

A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC with its real topic and queue as properties. To
commit it is to store it once more where it belongs. Either end leaves a note in the op topic: the
queue offsets of the half messages that are done with. One whose end is not heard of in time is
asked about: it is stored again, with a count of how often that was, and a producer of its group
gets a copy. So both topics are read from front to back, and two offsets, kept like those of a
consumer group, say where; what lies behind them is done with.

Beyond RocketMQ: a note goes to the log at once, and also names the later copy of a half message
that was asked about. So an end that comes late, twice, or before a crash is not asked for again.

A loss of power takes any part of what was not flushed, and new records come to stand in its place.
So a commit is flushed before its note is written; the two offsets are saved when the log is safe up
to where it was; and a note, or an end that a producer tells, counts only for the half message that
it means, and not for whatever has its offset now.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum, auto

from rocketpipe.broker.clients import Clients
from rocketpipe.broker.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANSACTION_GROUP,
)
from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.putting import CODES, Puts, Stored, as_future, redraft
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import MessageDraft, PutResult, PutStatus, ReadStatus
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.broker.waiting import real_place, timer_remark
from rocketpipe.clock import Clock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import MQError
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.java_text import read_integer
from rocketpipe.wire.properties import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from rocketpipe.wire.record import decode_record, decode_records, encode_record
from rocketpipe.wire.requests.callbacks import CheckTransactionState
from rocketpipe.wire.requests.sending import EndTransaction
from rocketpipe.wire.sys_flag import TRANSACTION_COMMIT, with_transaction_type

log = logging.getLogger(__name__)

DONE_TAG = "d"
ENDED_LATELY_MAX = 10_000
CHUNK_MESSAGES = 32
CHUNK_BYTES = 1024 * 1024
ASK_TIMEOUT = 0.01  # to find room in a producer's connection; as RocketMQ's

# A response of Apache's that was given a code, and nothing else.
NOT_SET = "not set any response code"


class Verdict(Enum):
    """What to do with a half message whose end is not known."""

    WAIT = auto()  # its producer still has time
    KEEP = auto()  # it has asked for more time than others: it must not hold them up
    ASK = auto()
    GIVE_UP = auto()


def judge(message: StoredMessage, settings: BrokerSettings, now_ms: int) -> Verdict:
    """Whether it is time to ask a producer (TransactionalMessageServiceImpl.check)."""
    age = (now_ms - message.born_timestamp_ms) / 1000
    if (
        times_asked(message.properties) >= settings.transaction_check_max
        or age > settings.store.file_reserved_time
    ):
        return Verdict.GIVE_UP
    immunity = immunity_seconds(message.properties, settings)
    if immunity is not None:
        return Verdict.KEEP if age <= immunity else Verdict.ASK
    return Verdict.WAIT if 0 <= age <= settings.transaction_timeout else Verdict.ASK


def times_asked(properties: Mapping[str, str]) -> int:
    try:
        return read_integer(properties.get(TRANSACTION_CHECK_TIMES, "0"), 32)
    except ValueError:
        return 0


def immunity_seconds(properties: Mapping[str, str], settings: BrokerSettings) -> float | None:
    """How long nobody may ask about this one; None when it does not say."""
    text = properties.get(CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    try:
        seconds = read_integer(text, 64)
    except ValueError:
        seconds = 0
    return max(float(seconds), settings.transaction_timeout)


class Transactions:
    """Stores half messages, ends them, and asks about those whose end is not known."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        puts: Puts,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        clients: Clients,
        clock: Clock,
        *,
        store_host: bytes,
        next_unique_id: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._store = store
        self._puts = puts
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._clock = clock
        self._store_host = store_host
        self._next_unique_id = next_unique_id
        self._half_offset = 0  # all half messages before it are done with
        self._ended: set[int] = set()  # those after it that are, too
        # Those whose commit is being stored, each with all offsets of its half message: until it is
        # in the log, they are not done with.
        self._committing: dict[int, set[int]] = {}
        self._notes: deque[tuple[int, int]] = deque()  # op offset and half offset, in order
        # Of half messages that were stored again: where the first was, and where the last is.
        self._latest: dict[int, int] = {}
        # The first offsets of some that ended: more than one question may be on its way to a
        # producer, and each of the answers is an end.
        self._ended_lately: dict[int, None] = {}
        # How far both topics are done with, to be saved when the log is safe up to an offset.
        self._unsaved: tuple[int, int, int] | None = None

    def load(self) -> None:
        """Find out what is not done with, from the two topics."""
        self._half_offset = self._saved_offset(HALF_TOPIC)
        noted: dict[int, int] = {}  # half offset, and where in the log its last note is
        for note in self._read(OP_HALF_TOPIC, self._saved_offset(OP_HALF_TOPIC)):
            for half_offset in _noted(note):
                self._notes.append((note.queue_offset, half_offset))
                noted[half_offset] = note.physical_offset
        for half in self._read(HALF_TOPIC, self._half_offset):
            first = _first_offset(half)
            # A note that stands before it in the log is about another one, which had its offset
            # until a loss of power took it and spared the note.
            is_noted = noted.get(half.queue_offset, -1) > half.physical_offset
            if is_noted or self._latest.get(first, first) in self._ended:
                self._ended.add(half.queue_offset)
            if first != half.queue_offset:
                self._latest[first] = half.queue_offset

    # Storing and ending.

    def prepare(self, draft: MessageDraft, stored: Stored) -> None:
        """Store a half message."""
        properties = decode_properties(draft.properties)
        for ours in (TRAN_PREPARED_QUEUE_OFFSET, TRANSACTION_CHECK_TIMES):
            properties.pop(ours, None)  # nobody else may say so
        properties |= {
            TRANSACTION_ID: properties.get(UNIQ_KEY, ""),
            REAL_TOPIC: draft.topic,
            REAL_QID: str(draft.queue_id),
        }
        half = draft._replace(
            topic=HALF_TOPIC,
            queue_id=0,
            properties=encode_properties(properties),
            sys_flag=with_transaction_type(draft.sys_flag, 0),
        )
        self._puts.put_now(half, stored)

    async def commit(self, request: EndTransaction) -> None:
        """Store the message where it belongs, or a Refusal."""
        half = self._find_half(request)
        if self._is_ended(half):
            return
        topic, queue_id = real_place(half.properties)
        properties = dict(half.properties)
        for name in (REAL_TOPIC, REAL_QID, TRAN_PREPARED_QUEUE_OFFSET):
            properties.pop(name, None)
        message = redraft(
            half,
            topic=topic,
            queue_id=queue_id,
            properties=encode_properties(properties),
            sys_flag=with_transaction_type(half.sys_flag, TRANSACTION_COMMIT),
            prepared_transaction_offset=half.physical_offset,
            wait_store_ok=True,
        )
        # Before it is stored, or a second commit meanwhile would store it, too.
        ended = self._mark_ended(half)
        self._committing |= dict.fromkeys(ended, ended)
        result = await self._puts.put_and_wait(message)
        for offset in ended:
            del self._committing[offset]
        if not result.is_stored:
            self._ended.difference_update(ended)
            raise _final_refusal(result, self._settings)
        # A loss of power may spare the note and take a message that was not flushed before it.
        if result.status is PutStatus.PUT_OK:
            await self._note(ended)

    async def roll_back(self, request: EndTransaction) -> None:
        """Be done with a half message, or a Refusal."""
        half = self._find_half(request)
        if not self._is_ended(half):
            await self._note(self._mark_ended(half))

    def _find_half(self, request: EndTransaction) -> StoredMessage:
        """The half message of which a producer speaks, after Apache's checks and in its words."""
        record = self._store.record_at(request.commit_log_offset)
        half = decode_record(record, decompressing=False) if record is not None else None
        if half is None or half.topic != HALF_TOPIC or not _is_meant(half, request):
            raise _refusal("Find prepared transaction message failed")
        immunity = immunity_seconds(half.properties, self._settings)
        age = (self._clock.wall_ms() - half.born_timestamp_ms) / 1000
        if not request.from_transaction_check and immunity is not None and age > immunity:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, NOT_SET)
        if half.properties.get(PGROUP) != request.producer_group:
            raise _refusal("The producer group wrong")
        if half.queue_offset != request.tran_state_table_offset:
            raise _refusal("The transaction state table offset wrong")
        return half

    def _is_ended(self, half: StoredMessage) -> bool:
        first = _first_offset(half)
        return (
            half.queue_offset in self._ended
            or self._latest.get(first, first) in self._ended
            or first in self._ended_lately
        )

    def _mark_ended(self, half: StoredMessage) -> set[int]:
        first = _first_offset(half)
        ended = {half.queue_offset, self._latest.get(first, half.queue_offset)}
        self._ended |= ended
        return ended

    def _remember_end(self, first: int) -> None:
        self._ended_lately[first] = None
        if len(self._ended_lately) > ENDED_LATELY_MAX:
            del self._ended_lately[next(iter(self._ended_lately))]

    async def _note(self, half_offsets: set[int]) -> None:
        """Leave a note, which a restart finds, that these are done with."""
        properties = {TAGS: DONE_TAG, UNIQ_KEY: self._next_unique_id()}
        note = MessageDraft(
            topic=OP_HALF_TOPIC,
            queue_id=0,
            body="".join(f"{offset}," for offset in sorted(half_offsets)).encode(),
            properties=encode_properties(properties),
            born_timestamp_ms=self._clock.wall_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
            wait_store_ok=False,
        )
        result = await as_future(self._puts.put_now, note)
        if result.is_stored:
            for half_offset in half_offsets:
                self._remember_note(result.queue_offset, half_offset)
        else:  # at worst the producer is asked about it after a restart
            log.error("the end of a transaction could not be noted: %s", result.reason)

    def _remember_note(self, op_offset: int, half_offset: int) -> None:
        self._notes.append((op_offset, half_offset))
        if half_offset >= self._half_offset:
            self._ended.add(half_offset)

    # Asking.

    async def check_forever(self) -> None:
        """Ask about what is not ended in time, now and again, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.transaction_check_interval)
            await self.check()

    async def check(self) -> None:
        """Go through the half messages once, up to the first whose producer still has time."""
        began_ms = self._clock.wall_ms()
        for half in self._read(HALF_TOPIC, self._half_offset):
            # Those stored meanwhile, which may be copies made below, are for the next time.
            if half.store_timestamp_ms >= began_ms or not await self._check_one(half, began_ms):
                break
            first = _first_offset(half)
            if half.queue_offset in self._ended:
                self._ended.discard(half.queue_offset)
                self._remember_end(first)
            if self._latest.get(first) == half.queue_offset:
                del self._latest[first]
            self._half_offset = half.queue_offset + 1
        while self._notes and self._notes[0][1] < self._half_offset:
            self._notes.popleft()
        self._save_progress()

    async def _check_one(self, half: StoredMessage, now_ms: int) -> bool:
        """Whether this half message, as it stands there, is done with."""
        if half.queue_offset in self._committing:
            return False
        latest = self._latest.get(_first_offset(half), half.queue_offset)
        if half.queue_offset in self._ended or half.queue_offset < latest:
            return True
        verdict = judge(half, self._settings, now_ms)
        if verdict is Verdict.WAIT:
            return False
        properties = {**half.properties, TRAN_PREPARED_QUEUE_OFFSET: str(_first_offset(half))}
        if verdict is Verdict.GIVE_UP:
            return await self._give_up(half)
        if verdict is Verdict.ASK:
            properties[TRANSACTION_CHECK_TIMES] = str(times_asked(half.properties) + 1)
        copy = await self._store_again(replace(half, properties=properties))
        if copy is not None and verdict is Verdict.ASK:
            await self._ask(copy)
        return copy is not None

    async def _store_again(self, half: StoredMessage) -> StoredMessage | None:
        """The half message as it stands at the end of the queue now; None if it does not."""
        first = _first_offset(half)
        result = await as_future(self._puts.put_now, redraft(half))
        if not result.is_stored:
            log.error("a half message could not be stored again: %s", result.reason)
            return None
        self._latest[first] = result.queue_offset
        # Its producer may have spoken while it was being stored.
        if committing := self._committing.get(half.queue_offset):
            committing.add(result.queue_offset)
            self._committing[result.queue_offset] = committing
            self._ended.add(result.queue_offset)
        elif half.queue_offset in self._ended:
            self._ended.add(result.queue_offset)
            await self._note({result.queue_offset})
        return replace(
            half,
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offsets[0],
            store_timestamp_ms=result.store_timestamp_ms,
        )

    async def _give_up(self, half: StoredMessage) -> bool:
        log.error("transaction of message %s is given up: nobody knows its end", half.message_id)
        self._topics.create_inner(TRANS_CHECK_MAX_TIME_TOPIC)
        draft = redraft(half, topic=TRANS_CHECK_MAX_TIME_TOPIC, queue_id=0)
        result = await as_future(self._puts.put_now, draft)
        return result.is_stored

    async def _ask(self, half: StoredMessage) -> None:
        """Send a copy, as if it were in its real place, to a producer of its group."""
        producer = self._clients.next_producer(half.properties.get(PGROUP, ""))
        if producer is None:
            log.warning("no producer is there to ask about message %s", half.message_id)
            return
        try:
            topic, queue_id = real_place(half.properties)
            header = CheckTransactionState(
                tran_state_table_offset=half.queue_offset,
                commit_log_offset=half.physical_offset,
                msg_id=half.properties.get(UNIQ_KEY),
                transaction_id=half.properties.get(UNIQ_KEY),
                offset_msg_id=half.offset_message_id,
                topic=HALF_TOPIC,
                broker_name=self._settings.broker_name,
            )
            body = encode_record(replace(half, topic=topic, queue_id=queue_id))
            command = header.to_command(body)
            await producer.connection.send_oneway(command, timeout=ASK_TIMEOUT)
        except MQError as error:
            log.warning("could not ask about message %s: %s", half.message_id, error)

    # Reading.

    def _read(self, topic: str, offset: int) -> Iterator[StoredMessage]:
        """All messages of a topic's queue 0 from an offset on, those that come meanwhile, too."""
        while True:
            read = self._store.read(
                topic, 0, offset, count_max=CHUNK_MESSAGES, bytes_max=CHUNK_BYTES
            )
            if read.status is ReadStatus.FOUND:
                yield from decode_records(read.records, decompressing=False)
            elif read.next_offset == offset or read.status is ReadStatus.NO_MATCHED_LOGIC_QUEUE:
                return
            offset = read.next_offset

    def _saved_offset(self, topic: str) -> int:
        offset = self._offsets.query(TRANSACTION_GROUP, topic, 0)
        return offset if offset >= 0 else self._store.min_offset(topic, 0)

    def _save_progress(self) -> None:
        """Save how far we are, or were when last called: what is saved must not be ahead of the
        log, or a loss of power would take the copy of a half message, or what it became."""
        if self._unsaved is None:
            notes_end = self._store.max_offset(OP_HALF_TOPIC, 0)
            op_offset = self._notes[0][0] if self._notes else notes_end
            self._unsaved = (self._store.max_physical_offset, self._half_offset, op_offset)
        log_end, half_offset, op_offset = self._unsaved
        if log_end <= self._store.flushed_offset:
            self._unsaved = None
            self._save_offset(HALF_TOPIC, half_offset)
            self._save_offset(OP_HALF_TOPIC, op_offset)

    def _save_offset(self, topic: str, offset: int) -> None:
        if self._offsets.query(TRANSACTION_GROUP, topic, 0) != offset:
            self._offsets.commit(TRANSACTION_GROUP, topic, 0, offset)


def _first_offset(half: StoredMessage) -> int:
    """Where a half message stood in the queue before it was stored again."""
    try:
        return read_integer(half.properties.get(TRAN_PREPARED_QUEUE_OFFSET, ""), 64)
    except ValueError:
        return half.queue_offset


def _is_meant(half: StoredMessage, request: EndTransaction) -> bool:
    """Whether this is the message whose end is told. Apache looks only at its place; but a loss of
    power may have taken the one that was there, and another may have come to stand in its place.

    An id of another length is not one that a client made like this one's: it may be anything.
    """
    unique_id = half.properties.get(UNIQ_KEY, "")
    told = {request.msg_id, request.transaction_id}
    is_another = len(request.msg_id) == len(unique_id)
    return not is_another or bool(told & {unique_id, half.offset_message_id})


def _noted(note: StoredMessage) -> list[int]:
    """The half messages a note of ours or Apache's is about: `12,15,` or, by 4.9, `12`."""
    try:
        return [read_integer(each, 64) for each in note.body.decode().split(",") if each]
    except ValueError as error:
        log.error("a note about transactions can't be read: %s", error)
        return []


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def _final_refusal(result: PutResult, settings: BrokerSettings) -> Refusal:
    """Apache's words for a commit that could not be stored (sendFinalMessage)."""
    if result.status is PutStatus.MESSAGE_ILLEGAL:
        limit = settings.store.message_bytes_max
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "The message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {limit}B, msg properties length limit 32KB.",
        )
    if remark := timer_remark(result.status, settings):
        return Refusal(CODES[result.status], remark)
    if result.status is PutStatus.OS_PAGE_CACHE_BUSY:
        return _refusal("OS page cache busy, please try another machine")
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
