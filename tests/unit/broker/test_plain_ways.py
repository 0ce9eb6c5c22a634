"""Sends and pulls that are taken at once, in C: answered and stored as by the ordinary way."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.compiled import compiled
from rocketpipe.remoting.connection import Connection, TakesPlain
from rocketpipe.testing.simulated_loop import run
from rocketpipe.wire.bodies.topics import TopicConfig, TopicFilterType
from rocketpipe.wire.frame import FrameDecoder, RemotingCommand, SerializeType
from rocketpipe.wire.requests.reading import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from rocketpipe.wire.requests.sending import SendMessage
from tests.unit.broker.bench import NAMESERVER, Bench, send, send_header
from tests.unit.broker.reading import HELD, pull, pull_header

pytestmark = pytest.mark.skipif(compiled is None, reason="nothing is plain without it")

STORE = StoreSettings(message_bytes_max=1000, commit_log_segment_bytes=4096)
PLACES = [
    (topic, queue_id) for topic in ("orders", "other", "tagged", "ordered") for queue_id in range(3)
]

Before = Callable[[Bench, Broker], None]


class Seen(NamedTuple):
    """What became of some requests."""

    answers: list[tuple[Any, ...]]
    log: list[bytes]
    committed: list[int]
    found_by_key: list[bytes]
    taken: int  # of the requests, by the plain ways


def played(
    requests: Sequence[RemotingCommand],
    *,
    plainly: bool = True,
    before: Before = lambda bench, broker: None,
    **broker_settings: Any,
) -> Seen:
    """Ask a broker that has been asked for each kind before, all at once."""

    async def main() -> Seen:
        bench = Bench()
        await bench.nameserver.server.listen(NAMESERVER)
        made = bench.broker(**{"store": STORE, **broker_settings})
        async with made as broker, bench.client(broker.address) as client:
            for topic, queue_id in PLACES:
                await send(client, topic, queue_id=queue_id)
            await pull(client)
            tagged = TopicConfig(topic_name="tagged", topic_filter_type=TopicFilterType.MULTI_TAG)
            broker.topics.put([tagged, TopicConfig(topic_name="ordered", order=True)])
            counted = Counted(broker, plainly=plainly)
            before(bench, broker)
            answers = await asyncio.gather(*[answer_of(client, each) for each in requests])
            await asyncio.sleep(1)  # for the one-way ones
            assert broker.flow_control.unanswered == 0
            seen = Seen(answers, whole_log(broker), *offsets_and_keys(broker), counted.taken)
        await bench.nameserver.server.close()
        return seen

    return run(main())


class Counted:
    """Counts what the plain ways of a broker take; or has them take nothing."""

    def __init__(self, broker: Broker, *, plainly: bool) -> None:
        self.taken = 0
        self._plainly = plainly
        broker.plain_sends = self._around(broker.plain_sends)
        broker.plain_pulls = self._around(broker.plain_pulls)

    def _around(self, take: TakesPlain | None) -> TakesPlain:
        assert take is not None

        def counting(connection: Connection, decoder: FrameDecoder, most: int) -> int:
            taken = take(connection, decoder, most) if self._plainly else 0
            self.taken += taken
            return taken

        return counting


async def answer_of(client: Connection, request: RemotingCommand) -> tuple[Any, ...]:
    if request.is_oneway:
        await client.send_oneway(request, timeout=3)
        return ()
    answer = await client.invoke(request, timeout=60)
    return answer.code, answer.remark, answer.ext_fields, answer.body


def whole_log(broker: Broker) -> list[bytes]:
    slices, offset = [], 0
    while found := broker.store.log_slice(offset, 1 << 20):
        slices.append(found)
        offset += len(found)
    return slices


def offsets_and_keys(broker: Broker) -> tuple[list[int], list[bytes]]:
    committed = [broker.offsets.query("readers", *each) for each in PLACES]
    committed += [broker.offsets.query_pulled("readers", *each) for each in PLACES]
    found = broker.store.query("orders", "U1", count_max=99).records
    return committed, found


def same(requests: Sequence[RemotingCommand], **scene: Any) -> Seen:
    """What both ways do, after seeing that it is the same."""
    plain = played(requests, **scene)
    ordinary = played(requests, plainly=False, **scene)
    assert ordinary.taken == 0
    assert plain._replace(taken=0) == ordinary
    return plain


# Requests, plain and not.


def a_send(topic: str = "orders", body: bytes = b"hello", **changes: Any) -> RemotingCommand:
    return send_header(topic, **changes).to_command(body)


def a_pull(**changes: Any) -> RemotingCommand:
    return pull_header(**changes).to_command()


def changed(request: RemotingCommand, **changes: Any) -> RemotingCommand:
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def with_properties(text: str) -> RemotingCommand:
    request = a_send()
    request.ext_fields["i"] = text
    return request


def in_v1() -> RemotingCommand:
    v2 = send_header()
    fields = {name: getattr(v2, name) for name in v2.short_names}
    return SendMessage(**fields).to_command(b"old")


PLAIN_SENDS: list[Callable[[], RemotingCommand]] = [
    a_send,
    lambda: a_send(queue_id=2, flag=7, reconsume_times=3),
    lambda: a_send(body=b"x" * 1000),
    lambda: a_send("other", properties={"UNIQ_KEY": "U2", "TAGS": "a", "KEYS": "k1 U1"}),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "WAIT": "true", "a": '"\\/b'}),
    lambda: a_send(sys_flag=1, body=b"not really compressed"),
    lambda: with_properties("UNIQ_KEY\x01U1"),
    lambda: with_properties("UNIQ_KEY\x01U8\x02UNIQ_KEY\x01U1\x02"),
]
OTHER_SENDS: list[Callable[[], RemotingCommand]] = [
    lambda: a_send(queue_id=3),  # the first of its queue
    lambda: a_send(properties={}),
    lambda: a_send(properties={"UNIQ_KEY": "é"}),
    lambda: a_send(properties={"UNIQ_KEY": 'a"b'}),
    lambda: a_send(properties={"UNIQ_KEY": ""}),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "name": "é"}),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "DELAY": "1"}),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "TIMER_DELAY_SEC": "1"}),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "TRAN_MSG": "true"}, sys_flag=4),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "WAIT": "false"}),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "CLUSTER": "mine"}),
    lambda: a_send(properties={"UNIQ_KEY": "U1", "MSG_REGION": "mine"}),
    lambda: with_properties("xUNIQ_KEY\x01U1\x02"),
    lambda: with_properties(""),
    lambda: with_properties("UNIQ_KEY\x01U1\x02" + "x" * 40_000),
    lambda: a_send(sys_flag=8),
    lambda: a_send(body=b""),
    lambda: a_send(body=b"x" * 1001),
    lambda: a_send(queue_id=99),
    lambda: a_send(queue_id=-1),
    lambda: a_send(born_timestamp=-1),
    lambda: a_send("created"),
    lambda: a_send("tagged"),
    lambda: a_send("ordered"),
    lambda: a_send("%RETRY%nobody"),
    lambda: a_send("SCHEDULE_TOPIC_XXXX"),
    lambda: a_send("RMQ_SYS_TRANS_HALF_TOPIC"),
    lambda: a_send("not/legal"),
    lambda: a_send(batch=True, body=b"no batch"),
    lambda: a_send(unit_mode=True),
    lambda: changed(a_send(), code=RequestCode.SEND_BATCH_MESSAGE),
    lambda: changed(a_send(), flag=2),  # one way
    lambda: changed(a_send(), serialize_type=SerializeType.ROCKETMQ),
    lambda: changed(a_send(), remark="why"),
    lambda: changed(a_send(), ext_fields={"b": "orders"}),
    in_v1,
]
PLAIN_PULLS: list[Callable[[], RemotingCommand]] = [
    a_pull,
    lambda: a_pull(topic="other", max_msg_bytes=10),
    lambda: a_pull(max_msg_nums=1, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET),
    lambda: changed(a_pull(), code=RequestCode.LITE_PULL_MESSAGE),
    lambda: a_pull(sys_flag=HELD | PULL_COMMIT_OFFSET, commit_offset=1),
]
OTHER_PULLS: list[Callable[[], RemotingCommand]] = [
    lambda: a_pull(queue_offset=99),
    lambda: a_pull(queue_offset=-1),
    lambda: a_pull(queue_id=3),
    lambda: a_pull(queue_id=99),
    lambda: a_pull(topic="nowhere"),
    lambda: a_pull(subscription="a || b"),
    lambda: a_pull(subscription="a = 1", expression_type="SQL92"),
    lambda: a_pull(queue_offset=1, sys_flag=HELD, suspend_timeout_millis=300),
    lambda: a_pull(sys_flag=0),  # by a subscription, which nobody has
    lambda: a_pull(sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commit_offset=-1),
    lambda: changed(a_pull(), ext_fields={"topic": "orders"}),
    lambda: changed(a_pull(), serialize_type=SerializeType.ROCKETMQ),
]


def test_plain_ones_are_taken_plainly() -> None:
    for make in PLAIN_SENDS + PLAIN_PULLS:
        assert same([make()]).taken == 1


def test_others_are_left_to_the_ordinary_way() -> None:
    for make in OTHER_SENDS + OTHER_PULLS:
        assert same([make()]).taken == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(PLAIN_SENDS)
        | st.sampled_from(PLAIN_SENDS + OTHER_SENDS)
        | st.sampled_from(PLAIN_PULLS + OTHER_PULLS),
        min_size=2,
        max_size=40,
    )
)
def test_in_any_order_nobody_can_tell_which_way_was_taken(
    makes: list[Callable[[], RemotingCommand]],
) -> None:
    same([make() for make in makes])


def test_a_burst_goes_on_in_the_next_segment_of_the_log() -> None:
    seen = same([a_send(body=b"x" * 500) for _ in range(40)])
    assert len(seen.log) > 3
    assert 30 <= seen.taken < 40  # the first of a segment is not plain
    assert all(answer[0] == ResponseCode.SUCCESS for answer in seen.answers)


# What else may be the matter with a broker.


def refuses_writes(bench: Bench, broker: Broker) -> None:
    bench.disk.fails_writes = True


def is_slow_to_sync(bench: Bench, broker: Broker) -> None:
    bench.disk.sync_seconds = (10.0, 10.0)


def fails_to_sync(bench: Bench, broker: Broker) -> None:
    bench.disk.fails_syncs = True


SYNC = StoreSettings(flush_disk_type="sync", sync_flush_timeout=1.0)


@pytest.mark.parametrize(
    ("before", "store", "code"),
    [
        (refuses_writes, STORE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (is_slow_to_sync, SYNC, ResponseCode.FLUSH_DISK_TIMEOUT),
        (fails_to_sync, SYNC, ResponseCode.FLUSH_DISK_TIMEOUT),
    ],
)
def test_a_failing_disk_is_told_to_each_who_sent(
    before: Before, store: StoreSettings, code: ResponseCode
) -> None:
    sends = [a_send(queue_id=number % 3) for number in range(5)]
    seen = same(sends, before=before, store=store)
    assert seen.taken == 5
    assert [answer[0] for answer in seen.answers] == [code] * 5


def is_busy(bench: Bench, broker: Broker) -> None:
    broker.faults.refuse(ResponseCode.SYSTEM_BUSY, times=1)


def is_late(bench: Bench, broker: Broker) -> None:
    broker.faults.delay(0.5, times=2)


@pytest.mark.parametrize(("before", "taken"), [(is_busy, 2), (is_late, 0)])
def test_faults_are_for_plain_ones_too(before: Before, taken: int) -> None:
    seen = same([a_send(), a_pull(), a_send()], before=before)
    assert seen.taken == taken  # once the fault is over
    assert (seen.answers[0][0] == ResponseCode.SYSTEM_BUSY) is (before is is_busy)


def test_a_fault_that_comes_after_a_send_was_taken_meets_its_answer() -> None:
    def before(bench: Bench, broker: Broker) -> None:
        # Told of the message before it is answered.
        broker.store.on_written.append(lambda _: None if broker.faults else is_late(bench, broker))

    assert same([a_send()], before=before).taken == 1


def is_reset(bench: Bench, broker: Broker) -> None:
    broker.offsets.reset("readers", "orders", 0, 0)


def test_a_reset_is_told_to_who_pulls() -> None:
    seen = same([a_pull()], before=is_reset)
    assert seen.taken == 0
    assert seen.answers[0][:2] == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")


@pytest.mark.parametrize(
    "setting",
    [
        {"broker_role": BrokerRole.SYNC_MASTER, "slave_timeout": 0.1},
        {"start_accept_send_request_timestamp_ms": 1},
        {"send_thread_pool_queue_capacity": 1},
    ],
    ids=str,
)
def test_settings_that_have_each_send_looked_at(setting: dict[str, Any]) -> None:
    assert same([a_send(), a_send()], **setting).taken == 0


def test_pulls_are_looked_at_where_slaves_may_serve_them() -> None:
    assert same([a_pull(), a_pull()], slave_read_enable=True).taken == 0
