"""All of POP that a broker has, put together."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from rocketpipe.broker.offsets import ConsumerOffsets
from rocketpipe.broker.pop.checkpoints import QueueOf
from rocketpipe.broker.pop.held_pops import ANY_QUEUE, HeldPops
from rocketpipe.broker.pop.ordered import OrderedPops
from rocketpipe.broker.pop.popping import Pops
from rocketpipe.broker.pop.revive_log import ReviveLog
from rocketpipe.broker.pop.reviving import Reviver
from rocketpipe.broker.pop.sharing import RequestModes
from rocketpipe.broker.putting import Puts
from rocketpipe.broker.saving import SavedTable
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.atomic_file import AtomicFile
from rocketpipe.broker.store.disk import Disk
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.clock import Clock
from rocketpipe.remoting.connection import Connection


class PopPart:
    """Its life is the broker's: load, work, save now and then, close or be killed."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        puts: Puts,
        topics: TopicConfigs,
        offsets: ConsumerOffsets,
        config_folder: Path,
        *,
        disk: Disk,
        clock: Clock,
        dice: random.Random,
    ) -> None:
        def file(name: str) -> AtomicFile:
            return AtomicFile(config_folder / name, disk=disk)

        self._settings = settings
        self.log = ReviveLog(settings, store, puts, offsets, clock)
        self.ordered = OrderedPops(file("consumerOrderInfo.json"), clock)
        self.modes = RequestModes(settings, file("messageRequestMode.json"))
        self.pops = Pops(settings, store, topics, offsets, self.log, self.ordered, clock, dice)
        self.reviver = Reviver(settings, store, puts, topics, offsets, self.log, clock)
        self.held = HeldPops(settings, store)
        self.held_questions = HeldPops(settings, store)
        self.log.on_added = self.reviver.may_be_due
        self.reviver.on_revived = self.wake_for_retries
        self.ordered.on_free = self.wake_for_queue
        store.on_arrival += [self.held.arrived, self.held_questions.arrived]

    def load(self, store_host: bytes) -> None:
        self.log.store_host = store_host
        self.ordered.load()
        self.modes.load()
        self.log.load(self.pops.offsets)

    @property
    def work(self) -> Callable[[], Awaitable[None]]:
        """What a master does in the background."""
        return self.reviver.revive_forever

    @property
    def saved(self) -> list[SavedTable]:
        return [self.ordered.saved, self.modes.saved]

    def save_if_changed(self) -> None:
        """Called now and then, before offsets are saved, which say how far all of this is."""
        if self._settings.is_slave:
            return  # whose offsets are its master's
        self.pops.offsets.commit()
        self.log.commit()
        self.ordered.save_if_changed()

    def stop(self) -> None:
        """Wait for nothing any more."""
        self.held.close()
        self.held_questions.close()
        self.ordered.close()

    def forget_connection(self, connection: Connection) -> None:
        self.held.forget_connection(connection)
        self.held_questions.forget_connection(connection)

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """A topic or a group is deleted, and with it all that it had popped."""
        self.log.forget(topic=topic, group=group)
        self.pops.offsets.forget(topic=topic, group=group)
        self.ordered.forget(topic=topic, group=group)
        self.modes.forget(topic=topic, group=group)

    # Whom to wake.

    def wake_for_queue(self, queue: QueueOf) -> None:
        for held in (self.held, self.held_questions):
            for queue_id in (queue.queue_id, ANY_QUEUE):
                held.wake_one(queue.topic, queue.group, queue_id)

    def wake_for_retries(self, topic: str, group: str) -> None:
        for held in (self.held, self.held_questions):
            held.wake_each_queue(topic, group)
