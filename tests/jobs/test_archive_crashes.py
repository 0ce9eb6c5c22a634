"""An archive that dies at any of its steps, and goes on: each row once, at every moment."""

import random
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

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


def offsets(folder: Path) -> list[int]:
    """What a reader sees who lists the folder."""
    if not folder.exists():
        return []
    found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    if not found.files:
        return []
    rows: list[int] = found.to_table(columns=["queueOffset"]).column(0).to_pylist()
    return sorted(rows)


def make(spark: SparkSession, path: Path, folder: Any = Folder) -> ArchiveTable:
    table = ArchiveTable(spark, str(path), file_bytes=1500, file_age=3600.0)
    table.folder = folder(spark, str(path))
    return table


def test_each_row_is_there_once_whichever_step_was_the_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    everything = range(BATCHES * ROWS)
    bad = [n for n in everything if n % 5 == 0]
    good = [n for n in everything if n % 5]
    first = random.randrange(1, STRIDE + 1)
    print("first", first)  # noqa: T201
    for steps in range(first, STEPS, STRIDE):
        path = tmp_path / f"{steps}"
        mortal = make(spark, path, MortalFolder)
        mortal.folder.steps_left = steps  # type: ignore[attr-defined]
        try:
            write(mortal, spark)
        except Died:
            survived = False
        else:
            survived = True
        seen = offsets(path)
        assert len(seen) == len(set(seen)), f"twice after {steps} steps"
        write(make(spark, path), spark)
        assert offsets(path) == good, steps
        assert offsets(path / "_quarantine") == bad, steps
        assert not [each for each in (path / "_rocketpipe/open").iterdir() if each.suffix != ".crc"]
        if survived:
            assert steps > 20
            return
    pytest.fail("it never got to its end")
