"""Which schemas a reader takes."""

import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from rocketpipe.errors import InvalidSetting
from rocketpipe.spark import columns
from rocketpipe.spark.schema import COLUMNS, all_columns, check_schema


def schema(*fields: StructField) -> StructType:
    return StructType(list(fields))


def test_there_is_a_decoder_for_each_column() -> None:
    assert list(columns._COLUMNS) == [name.lower() for name in COLUMNS]


def test_properties_can_be_left_out() -> None:
    assert all_columns(with_properties=True).names == list(COLUMNS)
    assert "properties" not in all_columns(with_properties=False).names


def test_any_choice_of_columns_in_any_order_is_fine() -> None:
    chosen = schema(
        StructField("QueueOffset", LongType(), False), StructField("body", BinaryType())
    )
    check_schema(chosen, with_properties=True)
    with pytest.raises(InvalidSetting, match="the schema has no column"):
        check_schema(schema(), with_properties=True)


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("value", BinaryType()), "there is no column value: topic, brokerName"),
        (StructField("body", StringType()), "column body is of type string in the schema: it must"),
        (StructField("bornTimestamp", TimestampNTZType()), "it must be timestamp"),
        (StructField("tags", StringType(), False), "column tags may be null"),
        (StructField("TOPIC", StringType()), "column topic stands twice"),
        (StructField("properties", COLUMNS["properties"]), "option includeProperties is false"),
    ],
)
def test_other_schemas_are_refused(field: StructField, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        check_schema(schema(StructField("topic", StringType()), field), with_properties=False)
