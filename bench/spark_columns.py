"""Decodes stored records into Arrow columns, [COLUMN...], and counts messages per CPU second.

No broker and no Spark: this is what decoding alone can do, on one core. Without arguments, all
columns; then those of `.schema("body binary")`; then records of 32 for an answer, as a stock broker
gives them, which must not cost more.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark.sql.types import StructField, StructType

from rocketpipe.spark.columns import ColumnDecoder
from rocketpipe.spark.schema import COLUMNS, arrow_schema
from rocketpipe.wire.record import encode_record
from tests.stored_message import stored_message

MESSAGES = 10_000  # about what one Arrow batch holds
BODY_BYTES = 200
ROUNDS = 200


def main(columns: list[str]) -> None:
    if columns:
        print(f"{', '.join(columns)}: {messages_per_cpu_second(columns):,.0f}")
        return
    print(f"all columns: {messages_per_cpu_second(list(COLUMNS)):,.0f}")
    print(f"body alone: {messages_per_cpu_second(['body']):,.0f}")
    print(f"all columns, 32 in an answer: {messages_per_cpu_second(list(COLUMNS), 32):,.0f}")


def messages_per_cpu_second(columns: list[str], answer_messages: int = 1024) -> float:
    """The best of some rounds, each over the same answers."""
    records = [_record(number) for number in range(MESSAGES)]
    starts = range(0, MESSAGES, answer_messages)
    answers = [b"".join(records[start : start + answer_messages]) for start in starts]
    schema = StructType([StructField(name, COLUMNS[name]) for name in columns])
    decoder = ColumnDecoder(arrow_schema(schema), broker_name="broker-a")
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        (batch,) = decoder.decode(answers, 0, MESSAGES)
        best = min(best, time.process_time() - began)
        assert batch.num_rows == MESSAGES
    return MESSAGES / best


def _record(number: int) -> bytes:
    """As a broker stores what a producer of ours sends."""
    return encode_record(
        stored_message(
            topic="benchmark",
            body=os.urandom(BODY_BYTES),
            queue_offset=number,
            physical_offset=number * 460,
            born_timestamp_ms=1794785750921 + number,
            store_timestamp_ms=1794785750922 + number,
            properties={
                "KEYS": f"order-{number}",
                "TAGS": "paid",
                "WAIT": "true",
                "UNIQ_KEY": f"7F000001{number:024X}",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
                "CLUSTER": "DefaultCluster",
            },
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
