"""Columns by the compiled part: used for all that is plain, and what was given stays as it is."""

import sys
from typing import Any

import pyarrow as pa
import pytest

from rocketpipe.compiled import compiled
from rocketpipe.spark import compiled_columns
from rocketpipe.spark.columns import ColumnDecoder
from rocketpipe.spark.compiled_columns import CompiledColumns
from rocketpipe.spark.schema import all_columns, arrow_schema
from rocketpipe.wire.record import encode_record
from rocketpipe.wire.sys_flag import COMPRESSED
from tests.stored_message import stored_message

pytestmark = pytest.mark.skipif(compiled is None, reason="nothing is compiled")

SCHEMA = arrow_schema(all_columns(with_properties=True))


def record(number: int = 0, **fields: Any) -> bytes:
    return encode_record(stored_message(queue_offset=number, **fields))


def reader() -> CompiledColumns:
    return CompiledColumns(list(SCHEMA), "broker-a", lambda topic: str(topic, "utf-8"))


def test_plain_messages_need_no_twin() -> None:
    properties = {"TAGS": "bezahlt-ä", "KEYS": "a  b", "UNIQ_KEY": "7F" * 16, "more": "..."}
    plain = [
        record(),
        record(topic="t" * 200, body=b"", properties=properties),
        record(properties={f"name-{number}": "value" for number in range(64)}),
        record(reconsume_times=3, flag=-1),
    ]
    arrays = reader().read([b"".join(plain), plain[0]])
    assert arrays is not None
    assert [len(array) for array in arrays] == [5] * len(SCHEMA)


@pytest.mark.parametrize(
    "odd",
    [
        record(properties={f"name-{number}": "value" for number in range(65)}),
        record(sys_flag=COMPRESSED),
        record(store_host="[::1]:1"),
        record(born_timestamp_ms=(1 << 63) - 1),
        record(body=b"damaged").replace(b"damaged", b"damageD"),
        record()[:-1],
    ],
)
def test_all_else_is_the_twins(odd: bytes) -> None:
    assert reader().read([record(), odd]) is None


def test_a_batch_that_is_kept_does_not_change_when_others_are_decoded() -> None:
    decoder = ColumnDecoder(SCHEMA, broker_name="broker-a")
    kept = []
    for number in range(20):
        (batch,) = decoder.decode([record(number, body=b"%d" % number)], 0, 1 << 62)
        # A slice, a column and a part of one keep the memory as well as the whole does.
        kept.append([batch, batch.slice(0, 1), batch.column("body"), batch["body"][0]][number % 4])
        del batch
    bodies = [
        each["body"][0].as_py() if isinstance(each, pa.RecordBatch)
        else each.as_py() if isinstance(each, pa.Scalar) else each[0].as_py()
        for each in kept
    ]  # fmt: skip
    assert bodies == [b"%d" % number for number in range(20)]


def test_memory_is_used_again_when_nobody_needs_it() -> None:
    columns = reader()
    places = set()
    for number in range(20):
        arrays = columns.read([record(number)])
        assert arrays is not None
        places.add(arrays[2].buffers()[1].address)
        del arrays
    assert len(places) == 1


def test_no_more_memory_is_kept_than_a_few_batches_need(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = reader()
    kept = [columns.read([record(number)]) for number in range(10)]
    assert len(columns._blocks) == 3
    del kept
    # A larger batch takes the place of a small one; a huge one is not kept at all.
    large = record(body=b"x" * 100_000)
    columns.read([large])
    assert sorted(len(block) > 100_000 for block in columns._blocks) == [False, False, True]
    monkeypatch.setattr(compiled_columns, "_SPARE_BYTES_MAX", 1000)
    columns.read([large + large])
    assert all(len(block) < 200_000 for block in columns._blocks)


def test_texts_that_do_not_fit_where_bytes_were_counted_are_the_twins() -> None:
    longer = CompiledColumns([SCHEMA.field("topic")], "broker-a", lambda topic: "x" * 1000)
    assert longer.read([record()]) is None

    def fail(topic: bytes) -> str:
        raise ValueError(topic)

    assert CompiledColumns([SCHEMA.field("topic")], "broker-a", fail).read([record()]) is None
    references = sys.getrefcount(None)
    for _ in range(100):
        longer.read([record()])
    assert abs(sys.getrefcount(None) - references) < 50
