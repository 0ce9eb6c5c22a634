"""The recorder of attempts: what it writes, when, and what it does when it can't."""

import asyncio
import io
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rocketpipe import AttemptRecorder, JsonLinesRecorder, Message, MessageQueue
from rocketpipe.client.hooks import SendContext
from rocketpipe.client.queue_choice import (
    Java5Settings,
    PeakEwmaSettings,
    Policy,
    PolicySettings,
)
from rocketpipe.client.recorder import JsonLinesSink, Record, attempt_record
from rocketpipe.client.threads import Threads
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, ConnectFailed, InvalidSetting, MQError
from rocketpipe.message import Attempt, SendResult, SendStatus
from rocketpipe.testing.simulated_loop import run
from tests.simulated_cluster import SimulatedCluster, after, refuse, simulated

QUEUE = MessageQueue("orders", "broker-a", 2)


def context(
    number: int = 1,
    status: SendStatus | None = SendStatus.SEND_OK,
    error: MQError | None = None,
    passed_over: tuple[tuple[str, str], ...] = (),
) -> SendContext:
    attempt = Attempt(
        QUEUE, "10.0.0.2:10911", 1_750_000_000_000, 0.0123456, status, error, "in turn", passed_over
    )
    messages = [Message("orders", b"x")] * 2
    result = SendResult(
        *(SendStatus.SEND_OK, "A,B", "", QUEUE, 7, None, None, "DefaultRegion", True, (attempt,))
    )
    return SendContext(
        *("group", messages, "A,B", 99, False, False, number, QUEUE, attempt.address, attempt),
        result=result if status is not None else None,
        policy="java5",
    )


class Inline(Threads):
    """In place of threads, which simulated time has not; a write may take its time."""

    def __init__(self, takes: float = 0.0) -> None:
        super().__init__("inline", 1)
        self.takes = takes

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(self.takes)
        return function(*args)


class Sink:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.writes: list[tuple[float, Sequence[Record]]] = []

    def write(self, records: Sequence[Record]) -> None:
        if self.failure is not None:
            raise self.failure
        self.writes.append((asyncio.get_running_loop().time(), list(records)))

    @property
    def attempts(self) -> list[int]:
        return [record["attempt"] for _, records in self.writes for record in records]


# What is recorded.


def test_a_record_of_a_stored_message() -> None:
    record = attempt_record(context(3, passed_over=(("broker-b", "failed already"),)))
    assert json.loads(json.dumps(record)) == {
        "started_ms": 1_750_000_000_000,
        "elapsed_ms": 12.346,
        "producer_group": "group",
        "topic": "orders",
        "message_ids": ["A", "B"],
        "messages": 2,
        "body_bytes": 99,
        "is_oneway": False,
        "is_transaction": False,
        "is_delayed": False,
        "policy": "java5",
        "attempt": 3,
        "is_late": False,
        "broker": "broker-a",
        "queue_id": 2,
        "address": "10.0.0.2:10911",
        "status": "SEND_OK",
        "queue_offset": 7,
        "error": None,
        "code": None,
        "remark": None,
        "reason": "in turn",
        "passed_over": {"broker-b": "failed already"},
    }


@pytest.mark.parametrize(
    ("error", "name", "code", "remark"),
    [
        (BrokerError(2, "[OVERLOAD]busy", "a:1"), "BrokerError", 2, "[OVERLOAD]busy"),
        (BrokerError(1, None, "a:1"), "BrokerError", 1, None),
        (ConnectFailed("a:1", "refused"), "ConnectFailed", None, "cannot connect to a:1: refused"),
        (None, None, None, None),  # one-way, or given up
    ],
)
def test_a_record_of_an_attempt_without_a_result(
    error: MQError | None, name: str | None, code: int | None, remark: str | None
) -> None:
    record = attempt_record(context(status=None, error=error))
    assert [record[each] for each in ("status", "error", "code", "remark")] == [
        *(None, name),
        *(code, remark),
    ]


@simulated(brokers=2)
async def test_every_attempt_of_a_producer_is_recorded(cluster: SimulatedCluster) -> None:
    sink = Sink()
    cluster.broker("broker-a").behaviour = refuse(ResponseCode.SYSTEM_ERROR, "sick")
    recorder = AttemptRecorder(sink, threads=Inline())
    async with cluster.producer(hooks=[recorder]) as producer:
        results = [await producer.send(Message("orders", b"x")) for _ in range(10)]
        await producer.send_oneway(Message("orders", b"x"), queue=results[0].queue)
        batch = await producer.send_batch([Message("orders", b"x")] * 3, queue=results[0].queue)
    records = [record for _, records in sink.writes for record in records]
    attempts = sum(len(result.attempts) for result in results)
    assert attempts > 10
    assert len(records) == attempts + 2
    failed = [record for record in records if record["error"]]
    assert {(record["broker"], record["code"], record["remark"]) for record in failed} == {
        ("broker-a", ResponseCode.SYSTEM_ERROR, "sick")
    }
    *_, oneway, last = records
    assert (oneway["is_oneway"], oneway["status"], oneway["error"]) == (True, None, None)
    assert last["message_ids"] == list(batch.message_ids)
    assert last["messages"] == 3
    assert last["queue_offset"] == batch.queue_offset
    assert not any(record["is_delayed"] or record["is_late"] for record in records)
    assert {record["policy"] for record in records} == {producer.settings.policy}


class OwnSettings:
    def build(self, dice: Random) -> Policy:
        return PeakEwmaSettings().build(dice)


@simulated()
async def test_a_record_names_the_policy_and_whether_the_message_waits(
    cluster: SimulatedCluster,
) -> None:
    policies: dict[str, str | PolicySettings] = {
        "java4": "java4",
        "java5": Java5Settings(busy_isolation=2),
        "Own": OwnSettings(),
    }
    for name, policy in policies.items():
        sink = Sink()
        recorder = AttemptRecorder(sink, threads=Inline())
        async with cluster.producer(hooks=[recorder], policy=policy) as producer:
            await producer.send(Message("orders", b"x", delay_level=3))
        ((_, [record]),) = sink.writes
        assert (record["policy"], record["is_delayed"]) == (name, True)


@simulated(brokers=2)
async def test_an_answer_that_comes_late_is_recorded_as_well(cluster: SimulatedCluster) -> None:
    sink = Sink()
    for name in ("broker-a", "broker-b"):
        cluster.broker(name).behaviour = after(1.7)
    recorder = AttemptRecorder(sink, threads=Inline())
    async with cluster.producer(hooks=[recorder], send_timeout=3.0) as producer:
        result = await producer.send(Message("orders", b"x"))
    records = [record for _, records in sink.writes for record in records]
    told = [(each["attempt"], each["is_late"], each["status"], each["error"]) for each in records]
    assert told == [
        (1, False, None, "RequestTimeout"),
        (1, True, "SEND_OK", None),
        (2, False, None, "ClientError"),
    ]
    late = records[1]
    assert late["broker"] == result.queue.broker_name
    assert late["queue_offset"] == result.queue_offset
    assert 1700 <= late["elapsed_ms"] < 1800


# When it is written.


def test_records_are_written_at_intervals_and_at_the_end() -> None:
    async def main() -> None:
        sink = Sink()
        recorder = AttemptRecorder(sink, interval=2, threads=Inline())
        await asyncio.sleep(5)
        recorder.after(context(1))
        await asyncio.sleep(1)
        recorder.after(context(2))
        assert sink.writes == []
        await asyncio.sleep(5)  # with nothing to write, nothing is written
        recorder.after(context(3))
        await recorder.close()
        assert [at for at, _ in sink.writes] == [7, 11]
        assert sink.attempts == [1, 2, 3]
        assert recorder.dropped == 0
        recorder.after(context(4))  # it is too late
        assert recorder.dropped == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_recorder_without_records_closes_too() -> None:
    async def main() -> None:
        sink = Sink()
        await AttemptRecorder(sink, threads=Inline()).close()
        assert sink.writes == []

    run(main())


def test_records_that_can_not_wait_are_dropped_and_counted() -> None:
    async def main() -> None:
        sink = Sink()
        recorder = AttemptRecorder(sink, records_max=3, threads=Inline())
        for number in range(5):
            recorder.after(context(number))
        assert recorder.dropped == 2
        await asyncio.sleep(1.1)
        assert sink.attempts == [0, 1, 2]
        recorder.after(context(5))
        await recorder.close()
        assert sink.attempts == [0, 1, 2, 5]

    run(main())


def test_a_disk_that_is_full_for_a_while_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        sink = Sink(OSError(28, "No space left on device"))
        recorder = AttemptRecorder(sink, threads=Inline())
        for number in range(5):
            recorder.after(context(number))
            await asyncio.sleep(1)
        sink.failure = None
        await asyncio.sleep(1)
        assert sink.attempts == [0, 1, 2, 3, 4]  # in order
        sink.failure = OSError(28, "No space left on device")
        recorder.after(context(5))
        await recorder.close()
        assert recorder.dropped == 1

    run(main())
    assert caplog.text.count("can't be written now") == 2  # once for each time it began
    assert "1 records of attempts were lost" in caplog.text


def test_a_disk_that_stays_full_fills_no_memory() -> None:
    async def main() -> None:
        sink = Sink(OSError(28, "No space left on device"))
        recorder = AttemptRecorder(sink, records_max=3, threads=Inline(takes=0.5))
        for number in range(4):  # the last while the others are being written
            recorder.after(context(number))
            await asyncio.sleep(0.4)
        await asyncio.sleep(0.5)
        for number in range(4, 10):
            recorder.after(context(number))
        assert len(recorder._waiting) == 3
        sink.failure = None
        await recorder.close()
        assert recorder.dropped == 7
        assert sink.attempts[0] == 0

    run(main())


def test_a_broken_sink_is_logged_and_gets_no_record_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        sink = Sink(ValueError("broken"))
        recorder = AttemptRecorder(sink, threads=Inline())
        recorder.after(context(1))
        await asyncio.sleep(1.5)
        sink.failure = None
        recorder.after(context(2))
        await recorder.close()
        assert sink.attempts == [2]
        assert recorder.dropped == 1

    run(main())
    assert "broken" in caplog.text


def test_a_disk_that_hangs_does_not_hang_the_producer() -> None:
    async def main() -> None:
        recorder = AttemptRecorder(Sink(), threads=Inline(takes=3600))
        recorder.after(context(1))
        await asyncio.sleep(2)
        recorder.after(context(2))
        began = asyncio.get_running_loop().time()
        await recorder.close()
        assert asyncio.get_running_loop().time() - began == 5
        assert recorder.dropped == 2

    run(main())


@pytest.mark.parametrize("settings", [{"interval": 0}, {"records_max": 0}, {"interval": "1"}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        AttemptRecorder(Sink(), **settings)


# JSON Lines.


def lines(path: Path) -> list[Any]:
    text = path.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines_are_appended_in_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "attempts.jsonl"

    async def main() -> None:
        for number in range(2):
            recorder = JsonLinesRecorder(path, interval=60, records_max=10)
            recorder.after(context(number))
            await recorder.close()

    asyncio.run(main())
    assert [record["attempt"] for record in lines(path)] == [0, 1]


def test_a_recorder_keeps_no_thread(tmp_path: Path) -> None:
    async def main() -> None:
        recorder = JsonLinesRecorder(tmp_path / "attempts.jsonl")
        recorder.after(context(1))
        await recorder.close()
        names = [each.name for each in threading.enumerate()]
        assert not [name for name in names if name.startswith("rocketpipe-recorder")]

    asyncio.run(main())


def test_what_is_not_ascii_is_written_too(tmp_path: Path) -> None:
    path = tmp_path / "attempts.jsonl"
    JsonLinesSink(path).write([{"remark": "é\n\ud800"}])
    assert lines(path) == [{"remark": "é\n\ud800"}]


@pytest.mark.parametrize("torn", ["", '{"a"', '{"a":' + "x" * 200_000])
@pytest.mark.parametrize("whole", ["", '{"old":1}\n'])
def test_a_line_that_a_crash_has_torn_is_cut_off(tmp_path: Path, whole: str, torn: str) -> None:
    path = tmp_path / "attempts.jsonl"
    path.write_text(whole + torn)
    JsonLinesSink(path).write([{"new": 1}])
    assert lines(path) == [*([{"old": 1}] if whole else []), {"new": 1}]


class Disk(io.FileIO):
    """One that takes a few bytes at a time, and has room for so many."""

    room = 1 << 30

    def write(self, data: Any) -> int:
        if Disk.room == 0:
            raise OSError(28, "No space left on device")
        taken = super().write(data[: min(7, Disk.room)])
        Disk.room -= taken
        return taken


class DiskSink(JsonLinesSink):
    def _open(self) -> io.FileIO:
        return Disk(self._path, "a+")


def test_a_write_that_fails_halfway_leaves_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "attempts.jsonl"
    sink = DiskSink(path)
    sink.write([{"n": number} for number in range(3)])
    monkeypatch.setattr(Disk, "room", 20)
    with pytest.raises(OSError, match="No space left"):
        sink.write([{"n": number} for number in range(3, 9)])
    assert lines(path) == [{"n": 0}, {"n": 1}, {"n": 2}]
    monkeypatch.undo()
    sink.write([{"n": 3}])
    assert lines(path) == [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]


def test_a_folder_that_is_not_there_fails_no_send(tmp_path: Path) -> None:
    async def main() -> None:
        recorder = JsonLinesRecorder(tmp_path / "missing" / "attempts.jsonl")
        recorder.after(context(1))
        await recorder.close()
        assert recorder.dropped == 1

    asyncio.run(main())
