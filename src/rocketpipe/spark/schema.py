"""The columns of a message, as Spark sees them."""

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketpipe.errors import InvalidSetting

COLUMNS: dict[str, DataType] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "messageId": StringType(),
    "offsetMessageId": StringType(),
    "tags": StringType(),
    "keys": ArrayType(StringType()),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType()),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "flag": IntegerType(),
    "sysFlag": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "deliveryAttempt": IntegerType(),
}
# Not every message has them; Spark would crash on a null where there must not be one.
_MAY_BE_NULL = frozenset({"tags", "bornTimestamp", "storeTimestamp", "deliveryAttempt"})
_BY_LOWER_NAME = {name.lower(): name for name in COLUMNS}


def all_columns(*, with_properties: bool) -> StructType:
    return StructType(
        [
            StructField(name, kind)
            for name, kind in COLUMNS.items()
            if with_properties or name != "properties"
        ]
    )


def check_schema(schema: StructType, *, with_properties: bool) -> None:
    """InvalidSetting unless it is a choice of our columns: Spark looks at no schema that a user
    gives. Only what is chosen is decoded."""
    if not schema.fields:
        raise InvalidSetting(f"the schema has no column: {', '.join(COLUMNS)} exist")
    seen = set()
    for field in schema.fields:
        name = _BY_LOWER_NAME.get(field.name.lower())
        if name is None:
            raise InvalidSetting(f"there is no column {field.name}: {', '.join(COLUMNS)} exist")
        if name in seen:
            raise InvalidSetting(f"column {name} stands twice in the schema")
        seen.add(name)
        kind = COLUMNS[name]
        if field.dataType != kind:
            raise InvalidSetting(
                f"column {name} is of type {field.dataType.simpleString()} in the schema: it must"
                f" be {kind.simpleString()}"
            )
        if not field.nullable and name in _MAY_BE_NULL:
            raise InvalidSetting(f"column {name} may be null: the schema must not say NOT NULL")
        if name == "properties" and not with_properties:
            raise InvalidSetting("the schema has properties, but option includeProperties is false")


def arrow_schema(schema: StructType) -> Any:
    """What Spark expects of our Arrow batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # PySpark before 4.2 always takes UTC
        return to_arrow_schema(schema)
