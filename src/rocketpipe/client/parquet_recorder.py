"""Records of attempts as Parquet files, for those who analyse them with Spark, DuckDB or pandas.

    async with AsyncProducer("order-service", hooks=[ParquetRecorder("attempts")]) as ...

It needs pyarrow, which comes with the extra `rocketpipe[spark]`.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from rocketpipe.client.recorder import AttemptRecorder, Record


class ParquetRecorder(AttemptRecorder):
    """Adds a Parquet file to a folder each `interval` seconds in which there were attempts.

    Several recorders may share a folder. A file appears there when it is whole.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, interval: float = 10.0, records_max: int = 100_000
    ) -> None:
        super().__init__(ParquetSink(folder), interval=interval, records_max=records_max)


class ParquetSink:
    """A folder of Parquet files, one for each write."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._schema = _schema()
        self._folder = Path(folder)

    def write(self, records: Sequence[Record]) -> None:
        import pyarrow
        import pyarrow.parquet

        name = f"attempts-{uuid4().hex}.parquet"
        table = pyarrow.Table.from_pylist(list(records), self._schema)
        self._folder.mkdir(parents=True, exist_ok=True)
        half = self._folder / f".{name}"  # readers leave out what begins with a dot
        try:
            pyarrow.parquet.write_table(table, half, compression="zstd")
            half.replace(self._folder / name)
        except OSError:
            with suppress(OSError):
                half.unlink()
            raise


def _schema() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("ParquetRecorder needs pyarrow: install rocketpipe[spark]") from error
    text, whole, yes_no = pyarrow.string(), pyarrow.int64(), pyarrow.bool_()
    return pyarrow.schema(
        {
            "started_ms": whole,
            "elapsed_ms": pyarrow.float64(),
            "producer_group": text,
            "topic": text,
            "message_ids": pyarrow.list_(text),
            "messages": whole,
            "body_bytes": whole,
            "is_oneway": yes_no,
            "is_transaction": yes_no,
            "is_delayed": yes_no,
            "policy": text,
            "attempt": whole,
            "is_late": yes_no,
            "broker": text,
            "queue_id": whole,
            "address": text,
            "status": text,
            "queue_offset": whole,
            "error": text,
            "code": whole,
            "remark": text,
            "reason": text,
            "passed_over": pyarrow.map_(text, text),
        }
    )
