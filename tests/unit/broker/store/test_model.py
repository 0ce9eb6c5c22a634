"""Anything that can be done to a store, in any order, against a dict that does the same."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rocketpipe.broker.store.values import PutResult, PutStatus, ReadStatus
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import SimulatedLoop
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.hashing import tags_code
from rocketpipe.wire.record import decode_record, decode_records
from tests.stores import FOLDER, SMALL, draft, everything, new_store, properties

T = TypeVar("T")

topics = st.sampled_from(["T", "U"])
queue_ids = st.integers(0, 1)
tags = st.sampled_from(["", "a", "b"])
keys = st.sampled_from(["k1", "k2", "k3"])


class StoreMachine(RuleBasedStateMachine):
    """A store and its model: of each queue, the body, tag and key of every message."""

    @initialize(
        segment_bytes=st.sampled_from([400, 2048]), checkpoint_bytes=st.sampled_from([1, 2000])
    )
    def start(self, segment_bytes: int, checkpoint_bytes: int) -> None:
        self.loop = SimulatedLoop()
        self.disk = SimulatedDisk()
        self.settings = replace(
            SMALL,
            flush_disk_type="sync",
            commit_log_segment_bytes=segment_bytes,
            checkpoint_bytes=checkpoint_bytes,
        )
        self.model: dict[tuple[str, int], list[tuple[bytes, str, str]]] = {}
        self.by_key: list[tuple[str, str, bytes]] = []
        self.count = 0
        self.run(self.open())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    async def open(self) -> None:
        self.store = new_store(self.disk, self.settings)
        await self.store.open()

    @rule(topic=topics, queue_id=queue_ids, tag=tags, key=keys, size=st.integers(0, 150))
    def put(self, topic: str, queue_id: int, tag: str, key: str, size: int) -> None:
        self.count += 1
        body = b"%d %s" % (self.count, bytes(size))
        queue = self.model.setdefault((topic, queue_id), [])
        text = properties(TAGS=tag, KEYS=key)
        result = self.run(self.store.put_and_wait(draft(body, topic, queue_id, properties=text)))
        assert (result.status, result.queue_offset) == (PutStatus.PUT_OK, len(queue))
        queue.append((body, tag, key))
        self.by_key.append((topic, key, body))

    @rule(topic=topics, queue_id=queue_ids, tag=tags, key=keys, count=st.integers(1, 3))
    def put_batch(self, topic: str, queue_id: int, tag: str, key: str, count: int) -> None:
        members = []
        for _ in range(count):
            self.count += 1
            named = {"TAGS": tag, "KEYS": key} if tag else {"KEYS": key}
            members.append(BatchMember(b"%d" % self.count, named))
        queue = self.model.setdefault((topic, queue_id), [])
        results: list[PutResult] = []
        self.store.put_batch(draft(encode_batch(members), topic, queue_id), results.append)
        self.run(asyncio.sleep(1))
        assert [result.queue_offset for result in results] == [len(queue)]
        queue += [(member.body, tag, key) for member in members]
        self.by_key += [(topic, key, member.body) for member in members]

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def close_and_open(self) -> None:
        self.run(self.store.close())
        self.run(self.open())

    @rule(power=st.booleans())
    def crash_and_open(self, power: bool) -> None:
        self.store.kill()
        if power:
            self.disk.lose_power()
        else:
            self.disk.kill_users()
        self.run(self.open())

    @rule()
    def lose_the_indexes(self) -> None:
        self.run(self.store.close())
        for name in ("checkpoint", "checkpoint.bak"):
            self.disk.remove(FOLDER / name)
        self.disk.remove_folder(FOLDER / "index")
        self.disk.remove_folder(FOLDER / "consumequeue")
        self.run(self.open())

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.run(self.store.delete_topic(topic))
        self.model = {key: queue for key, queue in self.model.items() if key[0] != topic}

    @rule(topic=topics, queue_id=queue_ids, tag=tags, offset=st.integers(0, 20))
    def read_with_a_filter(self, topic: str, queue_id: int, tag: str, offset: int) -> None:
        queue = self.model.get((topic, queue_id), [])
        read = self.store.read(
            *(topic, queue_id, offset),
            count_max=3,
            bytes_max=300,
            accepts=lambda code: code == tags_code(tag),
        )
        assert read.max_offset == len(queue)
        skipped = queue[offset : read.next_offset]
        found = [message.body for message in decode_records(read.records)]
        assert found == [body for body, its_tag, _ in skipped if its_tag == tag]
        if offset < len(queue):
            assert read.next_offset > offset
            assert (read.status is ReadStatus.FOUND) == bool(found)

    @rule(topic=topics, key=keys)
    def query(self, topic: str, key: str) -> None:
        found = [
            decode_record(record).body
            for record in self.store.query(topic, key, count_max=1000).records
        ]
        assert found == [
            body
            for its_topic, its_key, body in reversed(self.by_key)
            if (its_topic, its_key) == (topic, key)
        ]

    @invariant()
    def it_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "store"):
            return
        held = {key: queue for key, queue in everything(self.store).items() if queue}
        assert held == {
            key: [(offset, body) for offset, (body, _, _) in enumerate(queue)]
            for key, queue in self.model.items()
            if queue
        }

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.run(self.store.close())
            self.loop.close()
            assert not self.loop.failures()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=30)
