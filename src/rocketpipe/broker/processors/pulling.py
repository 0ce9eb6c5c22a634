"""Pulls: whole records out of a queue, at once or when there are any."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.held_pulls import HeldPull
from rocketpipe.broker.message_filter import MessageFilter
from rocketpipe.broker.page_cache import is_in_memory
from rocketpipe.broker.plain_pulls import PlainPulls
from rocketpipe.broker.pull_checks import Admitted, Pull, PullChecks, read_pull
from rocketpipe.broker.store.values import QueueRead, ReadStatus
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, failure_answer
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.reading import PULL_COMMIT_OFFSET, PULL_SUSPEND

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_EMPTY = (ReadStatus.NO_MATCHED_LOGIC_QUEUE, ReadStatus.NO_MESSAGE_IN_QUEUE)


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = PullProcessor(broker)
    if not broker.access.is_on:  # there each request is to be looked at
        broker.plain_pulls = PlainPulls(broker, processor.checks).take
    return {
        RequestCode.PULL_MESSAGE: processor.pull,
        RequestCode.LITE_PULL_MESSAGE: processor.pull,
    }


class PullProcessor:
    """Answers a pull, or holds it until there is something to answer."""

    def __init__(self, broker: "Broker") -> None:
        self._settings = broker.settings
        self._store = broker.store
        self._offsets = broker.offsets
        self._held = broker.held_pulls
        self._rates = broker.rates
        self.checks = PullChecks(broker.settings, broker.topics, broker.groups, broker.clients)
        broker.held_pulls.resume = self._resume
        broker.store.on_arrival.append(broker.held_pulls.arrived)

    def pull(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        return self._pull(connection, request, read_pull(request), may_hold=True)

    def _resume(self, held: HeldPull) -> None:
        """Answer one that has been held, whatever there is to say by now."""
        connection, request = held.connection, held.request
        try:
            answer = self._pull(connection, request, held.pull, may_hold=False)
        except Exception as error:
            answer = failure_answer(request, error)
        request.ext_fields = {"topic": held.pull.topic}  # by which faults may choose whom they meet
        connection.answer(request, answer)

    def _pull(
        self, connection: Connection, request: RemotingCommand, pull: Pull, *, may_hold: bool
    ) -> RemotingCommand | None:
        admitted = self.checks.admit(pull, request.code, connection.address)
        reset = self._offsets.take_reset(pull.group, pull.topic, pull.queue_id)
        if reset is not None:
            return self._answer_reset(request, pull, admitted, reset)
        read = self._store.read(
            pull.topic,
            pull.queue_id,
            pull.offset,
            count_max=self.checks.count_max(pull),
            bytes_max=self.checks.bytes_max(pull),
            accepts=admitted.filter.accepts,
            matches=admitted.filter.matches,
        )
        if read.status is ReadStatus.FOUND:
            code, remark, next_offset = ResponseCode.SUCCESS, "FOUND", read.next_offset
            self._rates.read(pull.group, pull.topic, len(read.sizes))
        else:
            code, remark, next_offset = self._judge(pull, read)
        self._offsets.note_pulled(pull.group, pull.topic, pull.queue_id, next_offset)
        if may_hold:
            if pull.sys_flag & PULL_COMMIT_OFFSET and pull.commit_offset >= 0:
                self._offsets.commit(pull.group, pull.topic, pull.queue_id, pull.commit_offset)
            if code == ResponseCode.PULL_NOT_FOUND and self._may_hold(request, pull):
                self._hold(connection, request, pull, admitted.filter)
                return None
        fields = {
            "suggestWhichBrokerId": self._suggested_broker(admitted, pull, next_offset),
            "nextBeginOffset": str(next_offset),
            "minOffset": str(read.min_offset),
            "maxOffset": str(read.max_offset),
            "topicSysFlag": str(admitted.topic.topic_sys_flag),
            "groupSysFlag": str(admitted.group.group_sys_flag),
        }
        return request.answer(code, remark, fields, read.records)

    def _judge(self, pull: Pull, read: QueueRead) -> tuple[ResponseCode, str, int]:
        """Code, remark and next offset of a pull that found nothing."""
        status, next_offset = read.status, read.next_offset
        if status in _EMPTY:
            # Apache's store makes a queue of whatever is asked for, so it knows all of them.
            status = ReadStatus.NO_MESSAGE_IN_QUEUE
            is_moved = pull.offset != 0
            code = ResponseCode.PULL_OFFSET_MOVED if is_moved else ResponseCode.PULL_NOT_FOUND
        else:
            code = _CODES[status]
        if self._settings.is_slave and code == ResponseCode.PULL_OFFSET_MOVED:
            # What a slave does not have yet, or never had, its master has: so it corrects nobody.
            # Apache's says that to retry at once, which is a busy loop while the master is away.
            code, next_offset = ResponseCode.PULL_NOT_FOUND, pull.offset
        return code, status.value, next_offset

    def _may_hold(self, request: RemotingCommand, pull: Pull) -> bool:
        return bool(pull.sys_flag & PULL_SUSPEND) and not request.is_oneway

    def _hold(
        self,
        connection: Connection,
        request: RemotingCommand,
        pull: Pull,
        wanted: MessageFilter,
    ) -> None:
        settings = self._settings
        seconds = pull.suspend_ms / 1000
        if not settings.long_polling_enable:
            seconds = settings.short_polling_time
        self._held.hold(HeldPull(connection, request, pull, wanted), seconds)
        request.ext_fields = {}  # they have been read, and thousands of pulls may wait

    def _answer_reset(
        self, request: RemotingCommand, pull: Pull, admitted: Admitted, offset: int
    ) -> RemotingCommand:
        # What the pull wants to commit is from before the reset, and not heard.
        self._offsets.note_pulled(pull.group, pull.topic, pull.queue_id, offset)
        fields = {
            "suggestWhichBrokerId": str(admitted.group.broker_id)
            if self._settings.slave_read_enable
            else "0",
            "nextBeginOffset": str(offset),
            "minOffset": str(self._store.min_offset(pull.topic, pull.queue_id)),
            "maxOffset": str(self._store.max_offset(pull.topic, pull.queue_id)),
            "topicSysFlag": str(admitted.topic.topic_sys_flag),
            "groupSysFlag": str(admitted.group.group_sys_flag),
        }
        return request.answer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", fields)

    def _suggested_broker(self, admitted: Admitted, pull: Pull, next_offset: int) -> str:
        """The id of the broker to pull from next: a slave for who is far behind, if that is on."""
        if not self._settings.slave_read_enable:
            return "0"
        group = admitted.group
        place = self._store.physical_offset_at(pull.topic, pull.queue_id, next_offset - 1)
        if place >= 0 and not is_in_memory(self._store, self._settings, place):
            return str(group.which_broker_when_consume_slowly)
        return str(group.broker_id)
