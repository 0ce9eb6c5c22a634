"""Checkpoints and acknowledgements as records of the log, and what is in flight, read from them.

They are stored in the topic that Apache keeps for it, with the names its PopCheckPoint and AckMsg
give their members; only the way is shorter, as ours wait in memory and not once more in the log:

ck      messages were popped: of whom, from where, when and for how long. With `nb` the group goes
        on at that offset, `first` if it never did before;
        with `of` its one message was another checkpoint's before
bAck    messages of a checkpoint are done with: acknowledged, or stored again
forget  a topic or a group was deleted, and with it all that was in flight

What lies before the oldest checkpoint that is not done is never read again. One that is not done
for long, while much else is, is stored anew: so there is never much to read at a start.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.pop.checkpoints import Checkpoint, Checkpoints, Key, QueueOf
from rocketpipe.broker.pop.offsets import REVIVE_GROUP, REVIVE_QUEUE, PopOffsets, revive_topic
from rocketpipe.broker.putting import Puts
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import MessageDraft, PutResult, ReadStatus
from rocketpipe.clock import Clock
from rocketpipe.message import StoredMessage
from rocketpipe.wire.properties import TAGS, encode_properties
from rocketpipe.wire.record import decode_records

log = logging.getLogger(__name__)

CHECKPOINT_TAG, ACK_TAG, FORGET_TAG = "ck", "bAck", "forget"
CHUNK_MESSAGES = 256
CHUNK_BYTES = 1024 * 1024
RECORDS_KEPT = 10_000  # besides two for each checkpoint that is not done


class Popped(NamedTuple):
    """What a checkpoint's record says besides: what it changes elsewhere."""

    next_offset: int | None = None
    is_first: bool = False
    taken_of: Checkpoint | None = None  # which had its one message before, and has it claimed


class ReviveLog:
    """Writes the records, and keeps in mind what they say together."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        puts: Puts,
        offsets: ConsumerOffsets,
        clock: Clock,
    ) -> None:
        self.checkpoints = Checkpoints()
        self.store_host = b""  # ours, to be told when it is known
        # Told when another checkpoint's time is up.
        self.on_added: Callable[[int], None] = lambda visible_at_ms: None
        self._broker_name = settings.broker_name
        self._store = store
        self._puts = puts
        self._offsets = offsets
        self._clock = clock
        self._topic = revive_topic(settings)
        self._noted: tuple[int, int] | None = (
            None  # where to begin, once the log is safe up to there
        )

    # Writing. Each calls `stored` once, and has then done in memory what the record says.

    def pop(
        self, checkpoint: Checkpoint, popped: Popped, stored: Callable[[PutResult], None]
    ) -> None:
        def done(result: PutResult) -> None:
            if result.is_stored:
                self._take(checkpoint, popped, result.queue_offset)
            elif popped.taken_of is not None:
                self.checkpoints.release(popped.taken_of, checkpoint.unacked)
            stored(result)

        self._put(CHECKPOINT_TAG, self._checkpoint_body(checkpoint, popped), done)

    def settle(
        self, checkpoint: Checkpoint, offsets: Collection[int], stored: Callable[[PutResult], None]
    ) -> None:
        """These messages of it, which are claimed, are acknowledged, stored again, or gone."""

        def done(result: PutResult) -> None:
            if result.is_stored:
                self.checkpoints.settle(checkpoint, offsets)
            else:
                self.checkpoints.release(checkpoint, offsets)
            stored(result)

        self._put(ACK_TAG, self._key_body(checkpoint.key) | {"aol": sorted(offsets)}, done)

    def move(self, checkpoint: Checkpoint, stored: Callable[[PutResult], None]) -> None:
        """Store the oldest anew."""

        def done(result: PutResult) -> None:
            if result.is_stored:
                self.checkpoints.moved(checkpoint, result.queue_offset)
            stored(result)

        self._put(CHECKPOINT_TAG, self._checkpoint_body(checkpoint, Popped()), done)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        if len(self.checkpoints):
            self._put(FORGET_TAG, {"t": topic, "c": group}, lambda _: None)
            self.checkpoints.forget(topic=topic, group=group)

    def _put(self, tag: str, body: dict[str, Any], done: Callable[[PutResult], None]) -> None:
        draft = MessageDraft(
            self._topic,
            REVIVE_QUEUE,
            json.dumps(body, separators=(",", ":")).encode(),
            encode_properties({TAGS: tag}),
            self._clock.wall_ms(),
            self.store_host,
            self.store_host,
        )
        self._puts.put_now(draft, lambda result, _: done(result))

    def _checkpoint_body(self, checkpoint: Checkpoint, popped: Popped) -> dict[str, Any]:
        start = checkpoint.key.start_offset
        body = self._key_body(checkpoint.key) | {
            "it": checkpoint.invisible_time,
            "n": len(checkpoint.unacked),
            "d": [offset - start for offset in sorted(checkpoint.unacked)],
        }
        if popped.next_offset is not None:
            body["nb"] = popped.next_offset
            if popped.is_first:
                body["first"] = True
        if popped.taken_of is not None:
            body["of"] = [popped.taken_of.key.start_offset, popped.taken_of.key.pop_time]
        return body

    def _key_body(self, key: Key) -> dict[str, Any]:
        (group, topic, queue_id), start, pop_time = key
        return {
            "c": group,
            "t": topic,
            "q": queue_id,
            "so": start,
            "pt": pop_time,
            "bn": self._broker_name,
        }

    def _take(self, checkpoint: Checkpoint, popped: Popped, place: int) -> None:
        if popped.taken_of is not None:
            self.checkpoints.settle(popped.taken_of, checkpoint.unacked)
        self.checkpoints.add(checkpoint, place)
        self.on_added(checkpoint.visible_at_ms)

    # What of it is still needed.

    @property
    def needs_moving(self) -> Checkpoint | None:
        """The oldest, if so much lies behind it that it is worth to store it anew."""
        oldest = self.checkpoints.oldest()
        if oldest is None:
            return None
        if oldest.claimed:
            return None  # until it is known what becomes of them
        behind = self._store.max_offset(self._topic, REVIVE_QUEUE) - oldest.place
        return oldest if behind > RECORDS_KEPT + 2 * len(self.checkpoints) else None

    def commit(self) -> None:
        """Note where to begin to read at the next start: called now and then, and at the end.

        What made a checkpoint done must be safe before it may be forgotten, so each note is about
        what was done by the time of the last call.
        """
        store, topic = self._store, self._topic
        if self._noted is not None:
            place, end = self._noted
            if store.flushed_offset < end:
                return
            if max(0, self._offsets.query(REVIVE_GROUP, topic, REVIVE_QUEUE)) != place:
                self._offsets.commit(REVIVE_GROUP, topic, REVIVE_QUEUE, place)
        oldest = self.checkpoints.oldest()
        place = oldest.place if oldest else store.max_offset(topic, REVIVE_QUEUE)
        self._noted = (place, store.max_physical_offset)

    # Reading, once.

    def load(self, offsets: PopOffsets) -> None:
        """Learn what is in flight, and how far groups have popped since offsets were saved."""
        committed_place = offsets.committed_place
        for record in self._records():
            place = record.queue_offset
            try:
                body = json.loads(record.body)
                if record.tags == FORGET_TAG:
                    self.checkpoints.forget(topic=body["t"], group=body["c"])
                    if place >= committed_place:
                        offsets.forget(topic=body["t"], group=body["c"])
                    continue
                key = Key(QueueOf(body["c"], body["t"], body["q"]), body["so"], body["pt"])
                if record.tags == ACK_TAG:
                    checkpoint = self.checkpoints.find(key)
                    if checkpoint is not None:
                        self.checkpoints.settle(checkpoint, body["aol"])
                elif record.tags == CHECKPOINT_TAG:
                    popped = self._popped(key, body)
                    unacked = (key.start_offset + distance for distance in body["d"])
                    self._take(Checkpoint(key, body["it"], unacked), popped, place)
                    if popped.next_offset is not None and place >= committed_place:
                        offsets.replay(
                            key.queue,
                            key.start_offset,
                            popped.next_offset,
                            is_first=popped.is_first,
                            place=place,
                            end=record.physical_offset + record.store_size,
                        )
            except (ValueError, KeyError, TypeError) as error:
                log.error("record %d of what was popped can't be read: %s", place, error)
        if len(self.checkpoints):
            log.info("%d pops wait to be acknowledged", len(self.checkpoints))

    def _records(self) -> Iterator[StoredMessage]:
        topic, store = self._topic, self._store
        offset = max(0, self._offsets.query(REVIVE_GROUP, topic, REVIVE_QUEUE))
        while True:
            read = store.read(
                topic, REVIVE_QUEUE, offset, count_max=CHUNK_MESSAGES, bytes_max=CHUNK_BYTES
            )
            if read.status is ReadStatus.FOUND:
                yield from decode_records(read.records)
            elif read.next_offset <= offset:
                return
            offset = read.next_offset

    def _popped(self, key: Key, body: dict[str, Any]) -> Popped:
        of = body.get("of")
        taken_of = self.checkpoints.find(Key(key.queue, *of)) if of is not None else None
        return Popped(body.get("nb"), "first" in body, taken_of)
