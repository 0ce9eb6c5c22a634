"""The log of a Delta table, over the Parquet files of an archive.

A Delta table is Parquet files and a log that says which of them count. `archive_table.py` writes
the files; here they are added to the log, by delta-rs, which needs no jar and so goes with every
release of Spark. Whatever reads Delta can read the table, Spark with delta-spark among it.

Each addition carries the number of the archive's state as a transaction of Delta's own kind. One
that a kill left in doubt is made again, and the log shows whether it was there already.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet
from pyarrow.fs import PyFileSystem

from rocketpipe.clock import Clock
from rocketpipe.errors import InvalidSetting, JobError

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction

APPLICATION = "rocketpipe archive"  # to which the numbers of transactions belong
PARTITIONED_BY = {"topic": "string", "date": "date"}

# What Spark wrote into the file: Delta's schemas look the same.
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
# Readers skip files by these. All of them are whole numbers or whole milliseconds, never null.
_SKIPPED_BY = ("queueId", "queueOffset", "storeTimestamp")


def check_delta(schema: str | None = None) -> None:
    """JobError without delta-rs, InvalidSetting for a schema of Spark's, as JSON, that Delta can't
    have."""
    try:
        from deltalake import Schema
    except ImportError:
        raise JobError("tables of Delta need deltalake: pip install 'rocketpipe[delta]'") from None
    if schema is not None:
        try:
            Schema.from_json(schema)
        except ValueError as error:
            raise InvalidSetting(f"schema: {error}") from None


def add_to_log(uri: str, files: Sequence[str], number: int, clock: Clock) -> None:
    """Add files, named from the table's folder, to its log, unless the log has this number."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import DeltaError
    from deltalake.fs import DeltaStorageHandler

    uri = uri.replace("file:/", "file:///", 1) if not uri.startswith("file://") else uri
    storage = PyFileSystem(DeltaStorageHandler(uri))
    metadata = {path: pyarrow.parquet.read_metadata(path, filesystem=storage) for path in files}
    try:
        table = _table(uri, _schema(metadata[files[0]]))
        if (table.transaction_version(APPLICATION) or 0) >= number:
            return
        table.create_write_transaction(
            [
                _addition(path, storage.get_file_info(path).size, metadata[path], clock.wall_ms())
                for path in files
            ],
            "append",
            table.schema(),
            list(PARTITIONED_BY),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(APPLICATION, number, clock.wall_ms())]
            ),
        )
    except DeltaError as error:
        raise JobError(f"{uri} can't be changed as a table of Delta: {error}") from error


def _table(uri: str, schema: "Schema") -> "DeltaTable":
    from deltalake import DeltaTable

    if DeltaTable.is_deltatable(uri):
        return DeltaTable(uri)
    return DeltaTable.create(uri, schema, partition_by=list(PARTITIONED_BY))


def _schema(metadata: pyarrow.parquet.FileMetaData) -> "Schema":
    from deltalake import Schema

    schema = json.loads(metadata.metadata[_SPARK_SCHEMA])
    schema["fields"] += [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in PARTITIONED_BY.items()
    ]
    return Schema.from_json(json.dumps(schema))


def _addition(
    path: str, size: int, metadata: pyarrow.parquet.FileMetaData, now_ms: int
) -> "AddAction":
    from deltalake.transaction import AddAction

    folders = (each.partition("=") for each in path.split("/")[:-1])
    return AddAction(
        path=path,
        size=size,
        partition_values={name: unquote(value) for name, _, value in folders},
        modification_time=now_ms,
        data_change=True,
        stats=json.dumps(_statistics(metadata)),
    )


def _statistics(metadata: pyarrow.parquet.FileMetaData) -> dict[str, Any]:
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name in _SKIPPED_BY and found is not None and found.has_min_max:
                lowest[name] = min(lowest.get(name, found.min), found.min)
                highest[name] = max(highest.get(name, found.max), found.max)
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: _told(value) for name, value in lowest.items()},
        "maxValues": {name: _told(value) for name, value in highest.items()},
        "nullCount": dict.fromkeys(lowest, 0),
    }


def _told(value: Any) -> Any:
    if isinstance(value, int):
        return value
    return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
