"""Measures what Spark's tasks do of their own, without Spark and brokers: decoding and encoding.

Prints messages per second of one processor, for bodies of 200 bytes: the best of some rounds, since
nothing else than other programs makes one slower than another.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from rocketpipe.client.settings import ProducerSettings
from rocketpipe.spark.columns import ColumnDecoder
from rocketpipe.spark.row_encoder import RowEncoder
from rocketpipe.spark.row_ids import task_digits
from rocketpipe.spark.schema import COLUMNS, arrow_schema
from rocketpipe.wire.record import encode_record
from tests.stored_message import stored_message

BODY_BYTES = 200
COUNT = 10_000  # of an Arrow batch, by Spark's default
ANSWER = 1024  # messages in the answer to a pull; a stock broker gives
STOCK_ANSWER = 32
ROUNDS = 100


def main() -> None:
    all_columns, bodies = list(COLUMNS), [os.urandom(BODY_BYTES) for _ in range(COUNT)]
    named = {"TAGS": "paid", "KEYS": "order-1 order-2"}
    works = {
        "decode, all columns": decoding(all_columns),
        "decode, all columns, with tags and keys": decoding(all_columns, named),
        "decode, all columns, 32 in an answer": decoding(all_columns, answer=STOCK_ANSWER),
        "decode, the body alone": decoding(["body"]),
        "encode, bodies": encoding({"body": bodies}),
        "encode, bodies, tags and keys": encoding(
            {"body": bodies, "tags": ["tag"] * COUNT, "keys": [["one", "two"]] * COUNT}
        ),
    }
    print("| work | messages per CPU second |")
    print("|---|---|")
    for name, work in works.items():
        print(f"| {name} | {rate(work):,.0f} |")


def rate(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return COUNT / best


def decoding(
    columns: list[str], more: dict[str, str] | None = None, *, answer: int = ANSWER
) -> Callable[[], object]:
    records = [record(number, more or {}) for number in range(COUNT)]
    answers = [b"".join(records[at : at + answer]) for at in range(0, COUNT, answer)]
    schema = StructType([StructField(name, COLUMNS[name]) for name in columns])
    decoder = ColumnDecoder(arrow_schema(schema), broker_name="broker-a")

    def decode() -> None:
        (batch,) = decoder.decode(answers, 0, COUNT)
        assert batch.num_rows == COUNT

    return decode


def record(number: int, more: dict[str, str]) -> bytes:
    """As a broker stores what the sink sends."""
    own = {"UNIQ_KEY": f"7F000001{number:024X}", "WAIT": "true", "CLUSTER": "DefaultCluster"}
    return encode_record(
        stored_message(
            topic="benchmark",
            body=os.urandom(BODY_BYTES),
            queue_offset=number,
            physical_offset=number * 460,
            born_timestamp_ms=1794785750921 + number,
            store_timestamp_ms=1794785750922 + number,
            properties={**more, **own},
        )
    )


def encoding(columns: Mapping[str, Sequence[object]]) -> Callable[[], object]:
    batch = pa.RecordBatch.from_pydict(dict(columns))
    settings = ProducerSettings("benchmark", namesrv="127.0.0.1:9876", batch_messages_max=1024)
    # A task of its own each time, as one has no more than so many rows.
    return lambda: RowEncoder(task_digits("job"), "benchmark", settings, lambda _: ()).encode(batch)


if __name__ == "__main__":
    main()
