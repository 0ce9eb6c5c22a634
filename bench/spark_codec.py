"""Measures what Spark's tasks do of their own, without Spark and brokers: decoding and encoding.

Prints messages per second of one processor, for bodies of 200 bytes.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
from pyspark.sql.types import StructType

from rocketpipe.client.settings import ProducerSettings
from rocketpipe.message import StoredMessage
from rocketpipe.spark.columns import ColumnDecoder
from rocketpipe.spark.row_encoder import RowEncoder
from rocketpipe.spark.row_ids import task_digits
from rocketpipe.spark.schema import all_columns, arrow_schema
from rocketpipe.wire.record import encode_record

BODY = b"x" * 200
COUNT = 10_000  # of an Arrow batch, by Spark's default
SECONDS = 3.0


def main() -> None:
    body = StructType([each for each in all_columns(with_properties=True) if each.name == "body"])
    rates = {
        "decode, all columns": decoding(all_columns(with_properties=True)),
        "decode, the body alone": decoding(body),
        "encode, bodies": encoding({"body": [BODY] * COUNT}),
        "encode, bodies, tags and keys": encoding(
            {"body": [BODY] * COUNT, "tags": ["tag"] * COUNT, "keys": [["one", "two"]] * COUNT}
        ),
    }
    print("| work | messages per CPU second |")
    print("|---|---|")
    for name, work in rates.items():
        print(f"| {name} | {rate(work):,.0f} |")


def rate(work: Callable[[], object]) -> float:
    work()
    done, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < began + SECONDS:
        work()
        done += COUNT
    return done / (time.process_time() - cpu)


def decoding(schema: StructType) -> Callable[[], object]:
    answer = b"".join(
        encode_record(
            StoredMessage(
                topic="benchmark",
                body=BODY,
                properties={"UNIQ_KEY": f"{n:032X}", "WAIT": "true", "CLUSTER": "DefaultCluster"},
                queue_id=3,
                queue_offset=n,
                physical_offset=1000 * n,
                flag=0,
                sys_flag=0,
                body_crc=0,
                born_timestamp_ms=1_750_000_000_000,
                born_host="127.0.0.1:50000",
                store_timestamp_ms=1_750_000_000_001,
                store_host="127.0.0.1:10911",
                reconsume_times=0,
                prepared_transaction_offset=0,
                store_size=0,
            )
        )
        for n in range(COUNT)
    )
    decoder = ColumnDecoder(arrow_schema(schema), broker_name="broker-a")
    return lambda: decoder.decode([answer], 0, COUNT)


def encoding(columns: dict[str, list[object]]) -> Callable[[], object]:
    batch = pa.RecordBatch.from_pydict(columns)
    settings = ProducerSettings("benchmark", namesrv="127.0.0.1:9876", batch_messages_max=1024)
    encoder = RowEncoder(task_digits("job"), "benchmark", settings, lambda _: ())
    return lambda: encoder.encode(batch)


if __name__ == "__main__":
    main()
