"""The blocking consumers: the async ones' methods, without await."""

import inspect
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpipe import (
    AsyncPullConsumer,
    AsyncPushConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    Retry,
    SendResult,
    StoredMessage,
)
from rocketpipe.errors import IllegalState, OffsetGap
from rocketpipe.testing import EmbeddedCluster
from rocketpipe.wire.record import decode_records


def public(cls: type) -> dict[str, Any]:
    return {name: each for name, each in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("async_class", "face_class"),
    [(AsyncPullConsumer, PullConsumer), (AsyncPushConsumer, PushConsumer)],
)
def test_both_of_a_pair_have_the_same_methods_with_the_same_parameters(
    async_class: Any, face_class: Any
) -> None:
    asyncs, blocking = public(async_class), public(face_class)
    assert blocking.keys() == asyncs.keys()
    for name, method in {**asyncs, "__init__": async_class.__init__}.items():
        if inspect.isfunction(method):
            face = getattr(face_class, name)
            mine, theirs = inspect.signature(face), inspect.signature(method)
            assert mine.parameters == theirs.parameters, name
            assert not inspect.iscoroutinefunction(face), name


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1) as cluster:
        yield cluster


@pytest.mark.slow
def test_every_way_to_read(embedded: EmbeddedCluster) -> None:
    with Producer("p", namesrv=embedded.namesrv) as producer:
        first = producer.send(Message("orders", b"0"))
        queue = first.queue
        for number in range(1, 100):
            sent = producer.send(Message("orders", str(number).encode()), queue=queue)
            assert isinstance(sent, SendResult)
    with PullConsumer(
        "g", namesrv=embedded.namesrv, consume_from="first", request_timeout=30.0
    ) as consumer:
        assert "@" in consumer.client_id
        assert queue in consumer.queues("orders")
        consumer.subscribe("orders")
        assert queue in consumer.assigned()
        bodies = []
        for message in consumer:
            bodies.append(message.body)
            if len(bodies) == 10:
                break
        assert bodies == [str(number).encode() for number in range(10)]
        while len(bodies) < 100:
            bodies += [message.body for message in consumer.poll(timeout=20, messages_max=40)]
        assert consumer.lag()[queue] == 0
        consumer.commit()
        assert consumer.committed(queue) == consumer.offsets()[queue] == 100
        consumer.commit({queue: 50})
        assert consumer.committed(queue) == 50
        consumer.seek(queue, 98)
        assert [each.queue_offset for each in consumer.poll(timeout=20)] == [98, 99]
        consumer.pause([queue])
        consumer.seek_to_begin(queue)
        assert consumer.poll(timeout=0.1) == []
        consumer.resume([queue])
        assert consumer.poll(timeout=20)[0].queue_offset == 0
        consumer.seek_to_end(queue)
        consumer.seek_to_time(queue, first.attempts[0].started_ms - 60_000)
        assert consumer.poll(timeout=20)[0].queue_offset == 0
        consumer.unsubscribe("orders")
        consumer.assign([queue])
        assert consumer.assigned() == [queue]
        answers = list(consumer.pull_range(queue, 10, 90))
        found = [message.queue_offset for body in answers for message in decode_records(body)]
        assert found == list(range(10, 90))
        assert next(consumer.pull_range(queue, 0, 100))  # and one that is not read to its end
        found = []
        with pytest.raises(OffsetGap):  # after all that is there
            for body in consumer.pull_range(queue, 90, 200):
                found += [message.queue_offset for message in decode_records(body)]
        assert found == list(range(90, 100))
    with pytest.raises(IllegalState):
        consumer.poll()


@pytest.mark.slow
def test_an_error_in_a_loop_leaves_its_message_to_come_again(embedded: EmbeddedCluster) -> None:
    with Producer("p", namesrv=embedded.namesrv) as producer:
        queue = producer.send(Message("bills", b"x")).queue
    with (
        pytest.raises(ZeroDivisionError),
        PullConsumer(
            "failing", namesrv=embedded.namesrv, consume_from="first", request_timeout=30.0
        ) as consumer,
    ):
        consumer.subscribe("bills")
        for _ in consumer:
            raise ZeroDivisionError
    with PullConsumer("failing", namesrv=embedded.namesrv, request_timeout=30.0) as consumer:
        assert consumer.committed(queue) == 0


@pytest.mark.slow
def test_a_plain_listener_runs_in_threads(embedded: EmbeddedCluster) -> None:
    lock = threading.Lock()
    bodies: list[bytes] = []
    names: set[str] = set()
    together = threading.Barrier(3)  # passed only if three are at work at once
    all_came = threading.Event()

    def listen(messages: list[StoredMessage]) -> Retry | None:
        if messages[0].body in (b"0", b"1", b"2") and not messages[0].reconsume_times:
            together.wait(timeout=30)
        if messages[0].body == b"7" and not messages[0].reconsume_times:
            return Retry(delay_level=1)
        with lock:
            bodies.extend(message.body for message in messages)
            names.add(threading.current_thread().name)
            if len(bodies) == 200:
                all_came.set()
        return None

    with PushConsumer(
        "push", listen, subscriptions={"pushed": "*"}, namesrv=embedded.namesrv
    ) as consumer:
        with Producer("p", namesrv=embedded.namesrv) as producer:
            sent = [str(number).encode() for number in range(200)]
            for body in sent:
                producer.send(Message("pushed", body))
        assert all_came.wait(timeout=60)
        consumer.suspend()
        consumer.resume()
        consumer.unsubscribe("pushed")
        consumer.subscribe("pushed")
        assert len(consumer.queues("pushed")) == 4
        assert set(consumer.queues("pushed")) <= set(consumer.assigned())
        assert "@" in consumer.client_id
    assert sorted(bodies) == sorted(sent)
    assert all(name.startswith(("rocketpipe-consumer", "rocketpipe-listening")) for name in names)


@pytest.mark.slow
def test_closing_waits_for_the_listener_and_what_it_did_is_stored(
    embedded: EmbeddedCluster,
) -> None:
    at_work, ended = threading.Event(), threading.Event()

    def listen(messages: list[StoredMessage]) -> None:
        at_work.set()
        time.sleep(0.5)
        ended.set()

    with Producer("p", namesrv=embedded.namesrv) as producer:
        queue = producer.send(Message("slow", b"x")).queue
    with PushConsumer(
        "slow",
        listen,
        subscriptions={"slow": "*"},
        namesrv=embedded.namesrv,
        consume_from="first",
    ):
        assert at_work.wait(timeout=60)
    assert ended.is_set()
    with PullConsumer("slow", namesrv=embedded.namesrv, request_timeout=30.0) as consumer:
        assert consumer.committed(queue) == 1
