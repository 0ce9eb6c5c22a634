"""An archive that dies at any of its steps, and goes on: each row once, at every moment."""

import random
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rocketpipe.spark.jobs import archive_table
from rocketpipe.spark.jobs.archive_delta import add_to_log
from rocketpipe.spark.jobs.archive_table import ArchiveTable
from rocketpipe.spark.jobs.folders import Folder

BATCHES, ROWS = 2, 10
COLUMNS = ["brokerName", "queueId", "queueOffset", "body"]
STEPS = 100  # more than there are
STRIDE = 3  # each run of this test takes others


class Died(BaseException):
    """As if the process were gone: nothing that it does afterwards has an effect."""


class MortalFolder(Folder):
    """Dies before its n-th change."""

    steps_left = STEPS

    def _step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise Died

    def move(self, name: str, to: str) -> None:
        self._step()
        super().move(name, to)

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)


def frame(spark: SparkSession, batch: int) -> DataFrame:
    """Ten rows of two days, of which two can't be read."""
    numbers = spark.range(batch * ROWS, (batch + 1) * ROWS, 1, 2)
    return numbers.select(
        fn.lit("orders").alias("topic"),
        fn.lit("broker-a").alias("brokerName"),
        fn.lit(0).alias("queueId"),
        fn.col("id").alias("queueOffset"),
        fn.col("id").cast("string").cast("binary").alias("body"),
        fn.when(fn.col("id") % 2 == 0, "2026-11-16").otherwise("2026-11-17").alias("date"),
        fn.when(fn.col("id") % 5 == 0, "bad").alias("reason"),
    )


def write(table: ArchiveTable, spark: SparkSession) -> None:
    """As a streaming query would: from the batch that was not done, or not known to be."""
    state = table.open({"topic": "orders"})
    for batch in range(max(0, state.batch), BATCHES):
        table.add_batch(frame(spark, batch), batch, COLUMNS)
        table.roll()
    table.roll(everything=True)


def offsets(folder: Path, is_delta: bool = False) -> list[int]:
    """What a reader sees who lists the folder, or who reads Delta's log."""
    if not folder.exists():
        return []
    if is_delta:
        if not DeltaTable.is_deltatable(str(folder)):
            return []
        return sorted(DeltaTable(folder).to_pyarrow_table().column("queueOffset").to_pylist())
    found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    if not found.files:
        return []
    rows: list[int] = found.to_table(columns=["queueOffset"]).column(0).to_pylist()
    return sorted(rows)


def make(spark: SparkSession, path: Path, folder: Any = Folder, *, is_delta: bool) -> ArchiveTable:
    table = ArchiveTable(spark, str(path), file_bytes=1500, file_age=3600.0, is_delta=is_delta)
    table.folder = folder(spark, str(path))
    return table


@pytest.mark.final
def test_each_row_is_there_once_whichever_step_was_the_last(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = range(BATCHES * ROWS)
    bad = [n for n in everything if n % 5 == 0]
    good = [n for n in everything if n % 5]
    first = random.randrange(1, STRIDE + 1)
    print("first", first)  # noqa: T201
    for steps in range(first, STEPS, STRIDE):
        is_delta = steps % 2 == 0
        path = tmp_path / f"{steps}"
        mortal = make(spark, path, MortalFolder, is_delta=is_delta)
        mortal.folder.steps_left = steps  # type: ignore[attr-defined]
        try:
            with monkeypatch.context() as patch:
                patch.setattr(archive_table, "add_to_log", mortal_log(mortal))
                write(mortal, spark)
        except Died:
            survived = False
        else:
            survived = True
        seen = offsets(path)
        assert len(seen) == len(set(seen)), f"twice after {steps} steps"
        logged = offsets(path, is_delta)
        assert len(logged) == len(set(logged)), f"twice after {steps} steps"
        write(make(spark, path, is_delta=is_delta), spark)
        assert offsets(path) == offsets(path, is_delta) == good, steps
        quarantine = path / "_quarantine"
        assert offsets(quarantine) == offsets(quarantine, is_delta) == bad, steps
        assert not [each for each in (path / "_rocketpipe/open").iterdir() if each.suffix != ".crc"]
        if survived:
            assert steps > 20
            return
    pytest.fail("it never got to its end")


def mortal_log(table: ArchiveTable) -> Any:
    """Dies before or after files are added to Delta's log."""
    folder = table.folder
    assert isinstance(folder, MortalFolder)

    def add(*args: Any) -> None:
        folder._step()
        add_to_log(*args)
        folder._step()

    return add
