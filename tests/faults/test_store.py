"""A store that loses power, or is killed, at any moment: nothing that it promised is lost."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.values import Done, MessageDraft, PutResult, PutStatus
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import run
from rocketpipe.wire.batch import BatchMember, encode_batch
from tests.stores import SMALL, draft, everything, new_store, properties

QUEUES = [("orders", 0), ("orders", 1), ("events", 0)]
Place = tuple[str, int, int]


class Life:
    """A store that is put to, crashes and comes back, and what it has promised so far."""

    def __init__(self, seed: int, *, is_sync: bool) -> None:
        self.disk = SimulatedDisk(seed)
        self.dice = random.Random(seed)
        self.is_sync = is_sync
        self.settings = replace(
            SMALL,
            flush_disk_type="sync" if is_sync else "async",
            commit_log_segment_bytes=self.dice.choice([700, 2048, 100_000]),
            checkpoint_bytes=self.dice.choice([1, 1000, 100_000]),
            flush_interval=self.dice.choice([0.01, 0.5]),
        )
        self.promised: dict[Place, bytes] = {}
        self.unsure: set[bytes] = set()
        self.count = 0

    async def live(self, crashes: int) -> None:
        for _ in range(crashes):
            store = await self._open()
            putting = asyncio.create_task(self._put_for_a_while(store))
            await asyncio.sleep(self.dice.choice([0.0, 0.003, 0.05, 1.0]) * self.dice.random())
            store.kill()
            putting.cancel()
            await asyncio.wait([putting])
            # Without sync flush only the death of the process is survived.
            if self.is_sync and self.dice.random() < 0.8:
                self.disk.lose_power()
            else:
                self.disk.kill_users()
        store = await self._open()
        await store.close()
        self.disk.lose_power()  # which harms nothing now
        store = await self._open()
        await store.close()

    async def _open(self) -> MessageStore:
        store = new_store(self.disk, self.settings)
        if self.dice.random() < 0.2:  # a crash while it recovers
            opening = asyncio.create_task(store.open())
            await asyncio.wait([opening], timeout=0.01 * self.dice.random())
            opening.cancel()
            await asyncio.wait([opening])
            store.kill()
            self.disk.lose_power() if self.is_sync else self.disk.kill_users()
            store = new_store(self.disk, self.settings)
        await store.open()
        self._check(store)
        return store

    def _check(self, store: MessageStore) -> None:
        found = {
            (topic, queue_id, offset): body
            for (topic, queue_id), messages in everything(store).items()
            for offset, body in messages
        }
        for place, body in self.promised.items():
            assert found.get(place) == body, f"{body!r} was promised at {place}"
            key = body.split()[0].decode()
            if self.dice.random() < 0.1:
                assert store.query(place[0], key, count_max=1).records
        assert len(set(found.values())) == len(found), "a message is there twice"
        for place, body in found.items():
            assert self.promised.get(place, body) == body
            assert body in self.unsure or place in self.promised
        # What was found is safe now, and read by consumers: from here on it has to stay.
        self.promised.update(found)

    async def _put_for_a_while(self, store: MessageStore) -> None:
        enough = self.count + 60
        while self.count < enough:
            for _ in range(self.dice.choice([1, 1, 3, 20])):
                self._put(store)
            await asyncio.sleep(self.dice.choice([0, 0, 0.001, 0.02]))

    def _put(self, store: MessageStore) -> None:
        topic, queue_id = self.dice.choice(QUEUES)
        put: Callable[[MessageDraft, Done], None]
        if self.dice.random() < 0.1:
            some = [self._body() for _ in range(3)]
            members = [BatchMember(body, {"UNIQ_KEY": body.split()[0].decode()}) for body in some]
            put, message = store.put_batch, draft(encode_batch(members), topic, queue_id)
        else:
            some = [self._body()]
            keys = properties(UNIQ_KEY=some[0].split()[0].decode(), TAGS="a")
            put, message = store.put, draft(some[0], topic, queue_id, properties=keys)
        self.unsure.update(some)

        def done(result: PutResult) -> None:
            assert result.status is PutStatus.PUT_OK, result
            for number, body in enumerate(some):
                place = (topic, queue_id, result.queue_offset + number)
                assert place not in self.promised, "an offset was given twice"
                self.promised[place] = body

        put(message, done)

    def _body(self) -> bytes:
        self.count += 1
        return b"m%d %s" % (self.count, self.dice.randbytes(self.dice.choice([0, 10, 100])))


@pytest.mark.final
@pytest.mark.parametrize("seed", range(200))
def test_what_was_promised_survives_a_power_loss(seed: int) -> None:
    run(Life(seed, is_sync=True).live(crashes=5))


@pytest.mark.final
@pytest.mark.parametrize("seed", range(100))
def test_without_sync_flush_it_survives_the_death_of_the_process(seed: int) -> None:
    run(Life(seed, is_sync=False).live(crashes=5))
