"""The blocking producer: AsyncProducer's methods, without await."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from rocketpipe import (
    AsyncProducer,
    AsyncTransactionProducer,
    HalfMessage,
    Message,
    MessageQueue,
    Producer,
    SendContext,
    SendHook,
    SendResult,
    SendStatus,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from rocketpipe.errors import (
    ClientError,
    IllegalState,
    InvalidMessage,
    MQError,
    NoNameServer,
    ReplyTimeout,
    SendFailed,
)
from rocketpipe.wire.message_id import RecallHandle
from tests.sync.tiny_cluster import SILENT, SLOW, TinyCluster

ONLY_BLOCKING = {"send_async"}


def public(cls: type) -> dict[str, Any]:
    return {name: each for name, each in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("async_class", "face_class"),
    [(AsyncProducer, Producer), (AsyncTransactionProducer, TransactionProducer)],
)
def test_both_of_a_pair_have_the_same_methods_with_the_same_signatures(
    async_class: Any, face_class: Any
) -> None:
    asyncs, blocking = public(async_class), public(face_class)
    assert blocking.keys() - asyncs.keys() == ONLY_BLOCKING
    assert asyncs.keys() - blocking.keys() == set(), "the blocking producer fell behind"
    for name, method in {**asyncs, "__init__": async_class.__init__}.items():
        if inspect.isfunction(method):
            face = getattr(face_class, name)
            assert inspect.signature(face) == inspect.signature(method), name
            assert not inspect.iscoroutinefunction(face), name


def test_send_async_takes_what_send_takes() -> None:
    send, send_async = inspect.signature(Producer.send), inspect.signature(Producer.send_async)
    assert send_async.parameters == send.parameters


def test_every_way_to_send(cluster: TinyCluster) -> None:
    queue = MessageQueue("orders", "a", 3)
    with Producer("g", namesrv=cluster.namesrv) as producer:
        assert producer.settings.producer_group == "g"
        assert "@" in producer.client_id
        result = producer.send(Message("orders", b"1"))
        assert result.status is SendStatus.SEND_OK
        assert producer.send(Message("orders", b"2"), queue=queue).queue == queue
        selected = producer.send(
            Message("orders", b"3"), selector=lambda queues, _, arg: queues[arg], arg=2
        )
        assert selected.queue.queue_id == 2
        assert producer.send_async(Message("orders", b"4"), queue=queue).result().queue == queue
        producer.send_oneway(Message("orders", b"5"), queue=queue)
        batch = producer.send_batch((Message("orders", body) for body in (b"6", b"7")), queue=queue)
        assert (len(batch.message_ids), batch.queue) == (2, queue)
    assert cluster.bodies == [b"1", b"2", b"3", b"4", b"5", b"6", b"7"]
    assert cluster.goodbyes > 0


def test_requests_and_recalls(cluster: TinyCluster) -> None:
    with Producer("g", namesrv=cluster.namesrv) as producer:
        with pytest.raises(ReplyTimeout):
            producer.request(Message("orders", b"x"), timeout=3)
        handle = RecallHandle("orders", "a", 1, "ID").encode()
        assert producer.recall("orders", handle) == "recalled"
    assert cluster.bodies == [b"x"]


def test_transactions(cluster: TinyCluster) -> None:
    class Listener:
        def execute(self, message: HalfMessage, arg: object) -> TransactionState:
            assert threading.current_thread().name != "rocketpipe-loop"  # it may block
            assert (message.body, arg) == (b"half", "my order")
            return TransactionState.COMMIT

        def check(self, message: StoredMessage) -> TransactionState:
            return TransactionState.UNKNOWN

    with TransactionProducer("g", Listener(), namesrv=cluster.namesrv) as producer:
        result = producer.send_in_transaction(Message("orders", b"half"), "my order")
        producer.send(Message("orders", b"whole"))
    assert result.state is TransactionState.COMMIT
    assert cluster.bodies == [b"half", b"whole"]
    assert cluster.transaction_ends == 1


def test_the_timeout_gets_through(cluster: TinyCluster) -> None:
    silent, bad = Message(SILENT, b"x"), Message("orders", b"")
    with Producer("g", namesrv=cluster.namesrv, send_timeout=600) as producer:
        sends: list[Callable[[], object]] = [
            lambda: producer.send(silent, timeout=0.01),
            lambda: producer.send_batch([silent], timeout=0.01),
            lambda: producer.send_async(silent, timeout=0.01).result(),
        ]
        for send in sends:
            with pytest.raises(MQError):
                send()
        first, second = producer.send_many([silent, bad], timeout=0.01)
        assert isinstance(first, MQError)
        assert isinstance(second, InvalidMessage)
        with pytest.raises(ClientError):
            producer.send_oneway(Message("orders", b"x"), timeout=0)


def test_send_many_gives_a_result_for_each_in_order(cluster: TinyCluster) -> None:
    with Producer(
        "g", namesrv=cluster.namesrv, batch_messages_max=4, batches_in_flight_max=3
    ) as producer:
        messages = [Message("orders", str(n).encode() or b"-") for n in range(50)]
        messages[17] = Message("orders", b"")
        results = producer.send_many(iter(messages))
        assert producer.send_many([]) == []
    assert [n for n, each in enumerate(results) if not isinstance(each, SendResult)] == [17]
    assert isinstance(results[17], InvalidMessage)
    assert len({each.message_id for each in results if isinstance(each, SendResult)}) == 49
    assert sorted(cluster.bodies, key=int) == [m.body for m in messages if m.body]


def test_send_many_iterates_where_it_may_block_and_only_as_fast_as_it_sends(
    cluster: TinyCluster,
) -> None:
    with Producer(
        "g", namesrv=cluster.namesrv, batch_messages_max=2, batches_in_flight_max=2
    ) as producer:

        def messages() -> Iterator[Message]:
            for n in range(8):
                assert threading.current_thread() is caller
                # It blocks until another message went through: the loop is not held up.
                producer.send(Message("orders", b"between"))
                assert len(cluster.bodies) >= n - 4
                yield Message("orders", b"many")

        caller = threading.current_thread()
        assert len(producer.send_many(messages())) == 8


def test_send_many_takes_and_sends_no_more_of_large_messages_than_of_small_ones(
    cluster: TinyCluster,
) -> None:
    taken, on_their_way = [0], [0]
    seen: list[tuple[int, int]] = []

    class Watch(SendHook):
        def before(self, context: SendContext) -> None:
            on_their_way[0] += 1
            seen.append((on_their_way[0], taken[0]))

        def after(self, context: SendContext) -> None:
            on_their_way[0] -= 1

    def messages() -> Iterator[Message]:
        for _ in range(6):
            taken[0] += 1
            yield Message(SILENT, bytes(5000))  # too large for a batch

    with Producer(
        "g", namesrv=cluster.namesrv, batches_in_flight_max=2, hooks=[Watch()]
    ) as producer:
        outcomes = producer.send_many(messages(), timeout=0.1)
    assert [type(each) for each in outcomes] == [SendFailed] * 6
    assert max(count for count, _ in seen) == 2
    assert seen[1][1] <= 3  # two on their way, and one that waits


def test_a_failing_iterable_of_send_many_is_told_after_the_rest_has_arrived(
    cluster: TinyCluster,
) -> None:
    def messages() -> Iterator[Message]:
        for n in range(3):
            yield Message(SLOW, b"%d" % n)
        raise KeyError("mine")

    with Producer(
        "g", namesrv=cluster.namesrv, batch_messages_max=2, batches_in_flight_max=2
    ) as producer:
        with pytest.raises(KeyError, match="mine"):
            producer.send_many(messages())
        assert cluster.bodies == [b"0", b"1"]


def test_many_threads_may_send_at_once(cluster: TinyCluster) -> None:
    with (
        Producer("g", namesrv=cluster.namesrv) as producer,
        ThreadPoolExecutor(16) as threads,
    ):

        def work(thread: int) -> list[str]:
            return [
                producer.send(Message("orders", f"{thread}-{n}".encode())).message_id
                for n in range(20)
            ]

        ids = [each for of_thread in threads.map(work, range(16)) for each in of_thread]
    assert len(set(ids)) == 320
    assert sorted(cluster.bodies) == sorted(
        f"{t}-{n}".encode() for t in range(16) for n in range(20)
    )


def test_send_async_blocks_while_too_many_are_on_their_way(cluster: TinyCluster) -> None:
    with Producer("g", namesrv=cluster.namesrv, async_sends_in_flight_max=2) as producer:
        waiting = [producer.send_async(Message(SILENT, b"x"), timeout=30) for _ in range(2)]
        third: Future[SendResult] = Future()

        def send_third() -> None:
            third.set_result(producer.send_async(Message("orders", b"third")).result())

        thread = threading.Thread(target=send_third)
        thread.start()
        for _ in waiting:
            assert cluster.silent_sends.acquire(timeout=10)
        producer.send(Message("orders", b"after"))
        assert not third.done()
        assert cluster.bodies == [b"after"]
        assert waiting[0].cancel()
        assert third.result(10).status is SendStatus.SEND_OK
        thread.join()
        assert waiting[1].cancel()


def test_a_cancelled_send_async_is_not_waited_for(cluster: TinyCluster) -> None:
    with Producer("g", namesrv=cluster.namesrv) as producer:
        future = producer.send_async(Message(SILENT, b"x"), timeout=600)
        assert cluster.silent_sends.acquire(timeout=10)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result()
    # close() waits for what is on its way, and has returned


def test_close_waits_for_what_is_on_its_way(cluster: TinyCluster) -> None:
    producer = Producer("g", namesrv=cluster.namesrv)
    producer.start()
    futures = [producer.send_async(Message("orders", b"x")) for _ in range(200)]
    producer.close()
    done, _ = wait(futures, 0)
    assert len(done) == 200
    assert all(isinstance(future.result(), SendResult) for future in futures)


def test_what_is_not_running_says_so(cluster: TinyCluster) -> None:
    producer = Producer("g", namesrv=cluster.namesrv)
    message = Message("orders", b"x")
    uses: list[Callable[[], object]] = [
        lambda: producer.send(message),
        lambda: producer.send_async(message).result(),
        lambda: producer.send_many([]),
        lambda: producer.client_id,
    ]
    for use in uses:
        with pytest.raises(IllegalState, match="was not started: start it first"):
            use()
    with producer:
        with pytest.raises(IllegalState, match="only once"):
            producer.start()
        producer.send(message)
    for use in uses:
        with pytest.raises(IllegalState, match="is closed"):
            use()
    producer.close()  # no error
    with pytest.raises(IllegalState, match="only once"):
        producer.start()
    never_started = Producer("g", namesrv=cluster.namesrv)
    never_started.close()
    with pytest.raises(IllegalState, match="is closed"):
        never_started.start()


def test_a_closed_producer_says_so_while_another_goes_on(cluster: TinyCluster) -> None:
    with Producer("other", namesrv=cluster.namesrv) as other:
        with Producer("g", namesrv=cluster.namesrv) as producer:
            assert producer.client_id == other.client_id
            with (
                pytest.raises(ClientError, match="already"),
                Producer("g", namesrv=cluster.namesrv),
            ):
                pass
        with pytest.raises(IllegalState, match="is closed"):
            producer.send(Message("orders", b"x"))
        other.send(Message("orders", b"y"))
    assert cluster.bodies == [b"y"]


def test_closing_from_two_threads_at_once_closes_once(cluster: TinyCluster) -> None:
    producer = Producer("g", namesrv=cluster.namesrv)
    producer.start()
    producer.send(Message("orders", b"x"))
    with ThreadPoolExecutor(4) as threads:
        for closed in [threads.submit(producer.close) for _ in range(4)]:
            closed.result()
    assert cluster.goodbyes == 1


def test_an_error_is_the_one_the_async_producer_raises() -> None:
    with (
        Producer("g", namesrv="127.0.0.1:1") as producer,
        pytest.raises(NoNameServer, match="nobody listens there"),
    ):
        producer.send(Message("orders", b"x"))


@pytest.mark.parametrize("is_started", [False, True])
def test_inside_an_event_loop_it_refuses(cluster: TinyCluster, is_started: bool) -> None:
    producer = Producer("g", namesrv=cluster.namesrv)
    message = Message("orders", b"x")

    async def main() -> None:
        for use in (
            producer.start,
            producer.close,
            lambda: producer.send(message),
            lambda: producer.send_async(message),
            lambda: producer.send_many([message]),
        ):
            with pytest.raises(IllegalState, match="use the Async class"):
                use()

    if is_started:
        producer.start()
    asyncio.run(main())
    producer.close()
    assert cluster.bodies == []
