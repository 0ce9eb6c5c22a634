"""Records of attempts in Parquet files: the same as in JSON, whole files only."""

import builtins
import errno
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from rocketpipe import AttemptRecorder, Message, MessageQueue, ParquetRecorder
from rocketpipe.client.hooks import SendContext
from rocketpipe.client.parquet_recorder import ParquetSink
from rocketpipe.client.recorder import Record, attempt_record
from rocketpipe.errors import BrokerError
from rocketpipe.message import Attempt, SendStatus
from rocketpipe.sync.producer import Producer
from rocketpipe.testing import EmbeddedCluster

QUEUE = MessageQueue("orders", "broker-a", 2)


def record(*, stored: bool) -> Record:
    error = None if stored else BrokerError(2, "busy", "10.0.0.2:10911")
    attempt = Attempt(
        QUEUE,
        "10.0.0.2:10911",
        1_750_000_000_000,
        0.0123456,
        SendStatus.SEND_OK if stored else None,
        error,
        "in turn",
        () if stored else (("broker-b", "failed already"), ("broker-c", "slow")),
    )
    messages = [Message("orders", b"x")] * 2
    return attempt_record(
        SendContext("group", messages, "A,B", 99, False, False, 1, QUEUE, attempt.address, attempt)
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    found = pyarrow.parquet.read_table(folder).to_pylist(maps_as_pydicts="strict")
    return [dict(row) for row in found]


def test_every_value_comes_back(tmp_path: Path) -> None:
    records = [record(stored=True), record(stored=False)]
    ParquetSink(tmp_path / "new" / "folder").write(records)
    assert rows(tmp_path / "new" / "folder") == records


def test_each_write_is_a_file_of_its_own(tmp_path: Path) -> None:
    for sink in (ParquetSink(tmp_path), ParquetSink(str(tmp_path))):
        sink.write([record(stored=True)])
        sink.write([record(stored=False)])
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    assert len(rows(tmp_path)) == 4


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_half(table: object, path: Path, **_: object) -> None:
        path.write_bytes(b"PAR1")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", write_half)
    with pytest.raises(OSError, match="No space"):
        ParquetSink(tmp_path).write([record(stored=True)])
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ImportError(name)
        return real_import(name, *args)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"install rocketpipe\[spark\]"):
        ParquetRecorder(tmp_path)


def test_a_producer_records_its_attempts(tmp_path: Path) -> None:
    recorder = ParquetRecorder(tmp_path)
    assert isinstance(recorder, AttemptRecorder)
    with (
        EmbeddedCluster() as cluster,
        Producer("group", namesrv=cluster.namesrv, hooks=[recorder]) as producer,
    ):
        sent = [producer.send(Message("orders", b"x"), timeout=30.0) for _ in range(3)]
    assert recorder.dropped == 0
    recorded = rows(tmp_path)
    assert {row["status"] for row in recorded if row["status"]} == {"SEND_OK"}
    assert {row["message_ids"][0] for row in recorded} == {each.message_id for each in sent}
