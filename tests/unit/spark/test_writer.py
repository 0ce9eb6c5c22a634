"""The sink without Spark: what is refused at once, and what the driver is told."""

import logging
import pickle

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from rocketpipe.errors import InvalidSetting
from rocketpipe.spark.writer import Written, batch_writer, log, stream_writer, total

OPTIONS = {"namesrv": "127.0.0.1:9876", "topic": "orders"}
BODY = StructType([StructField("body", BinaryType())])

ONE = Written(3, 30, 2, 1, {"broker-a": 1, "broker-b": 1})
OTHER = Written(4, 40, 1, 0, {"broker-a": 1})


def test_nothing_is_overwritten() -> None:
    with pytest.raises(InvalidSetting, match=r'mode\("append"\)'):
        batch_writer(OPTIONS, BODY, True)
    with pytest.raises(InvalidSetting, match='not "complete"'):
        stream_writer(OPTIONS, BODY, True)


def test_columns_and_options_are_checked_when_the_query_is_planned() -> None:
    wrong = StructType([StructField("value", BinaryType())])
    for writer in (batch_writer, stream_writer):
        with pytest.raises(InvalidSetting, match="column 'value'"):
            writer(OPTIONS, wrong, False)
        with pytest.raises(InvalidSetting, match="no topic"):
            writer({"namesrv": "127.0.0.1:9876"}, BODY, False)
        with pytest.raises(InvalidSetting, match="there is no option speed"):
            writer({**OPTIONS, "speed": "high"}, BODY, False)


def test_a_writer_travels_to_tasks_as_the_same_job() -> None:
    writer = batch_writer(OPTIONS, BODY, False)
    assert vars(pickle.loads(pickle.dumps(writer))) == vars(writer)
    assert vars(batch_writer(OPTIONS, BODY, False)) != vars(writer)
    again = [batch_writer({**OPTIONS, "jobId": "nightly"}, BODY, False) for _ in range(2)]
    assert vars(again[0]) == vars(again[1])


def test_the_driver_logs_the_sum(caplog: pytest.LogCaptureFixture) -> None:
    summed = total([ONE, None, OTHER])
    assert summed == Written(7, 70, 3, 1, {"broker-a": 2, "broker-b": 1})
    with caplog.at_level(logging.INFO, "rocketpipe.spark.writer"):
        batch_writer(OPTIONS, BODY, False).commit([ONE, OTHER])
        stream_writer(OPTIONS, BODY, False).commit([ONE], 7)
    assert [record.getMessage() for record in caplog.records] == [
        "job written: 7 rows, 70 bytes, 3 requests (broker-a 2, broker-b 1), 1 retries",
        "batch 7 written: 3 rows, 30 bytes, 2 requests (broker-a 1, broker-b 1), 1 retries",
    ]


def test_the_sum_is_told_on_stderr_where_nobody_has_configured_logging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the process in which Spark commits; what pytest has configured is out of reach here."""
    monkeypatch.setattr(log, "propagate", False)
    batch_writer(OPTIONS, BODY, False).commit([ONE])
    assert "INFO rocketpipe.spark.writer: job written: 3 rows" in capsys.readouterr().err
    assert (log.level, log.handlers) == (logging.NOTSET, [])


def test_where_somebody_has_configured_logging_it_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = logging.getLogger("rocketpipe.spark")
    monkeypatch.setattr(quiet, "handlers", [logging.StreamHandler()])
    monkeypatch.setattr(quiet, "propagate", False)
    batch_writer(OPTIONS, BODY, False).commit([ONE])
    assert capsys.readouterr().err == ""


def test_an_abort_tells_what_stays_sent(caplog: pytest.LogCaptureFixture) -> None:
    batch_writer(OPTIONS, BODY, False).abort([ONE, None])
    stream_writer(OPTIONS, BODY, False).abort([None], 7)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("job not written: 1 of 2 tasks had finished, with 3 rows")
    assert second.startswith("batch 7 not written: 0 of 1 tasks had finished, with 0 rows")
    assert "stays sent" in first
