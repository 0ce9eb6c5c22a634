"""The properties string of a message, `name 0x01 value 0x02` repeated, and the names RocketMQ uses.

Nothing is escaped. A value may hold 0x01, since the first one splits; nothing may hold 0x02, nor
a name either. Reading is as lenient as Java's MessageDecoder.string2messageProperties, because
whatever a consumer can't read it could never get past.
"""

from collections.abc import Mapping

from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message
from rocketpipe.message import decode_properties as decode_properties

PROPERTIES_BYTES_MAX = 32767  # their length travels as a signed short


def encode_properties(properties: Mapping[str, str]) -> str:
    """The string that carries them, in the mapping's order."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count("\x02") != len(properties):
        raise InvalidMessage(f"a property may not contain 0x02: {text!r:.200}")
    names = "".join(properties)
    if "\x01" in names or "" in properties:
        raise InvalidMessage(f"a property's name may not be empty or contain 0x01: {text!r:.200}")
    return text


def encode_properties_bytes(properties: Mapping[str, str]) -> bytes:
    """The string in UTF-8, not longer than records and batches can carry."""
    if not properties:
        return b""
    try:
        data = encode_properties(properties).encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"a property is not text: {error}") from error
    if len(data) > PROPERTIES_BYTES_MAX:
        raise InvalidMessage(f"properties of {len(data)} bytes; {PROPERTIES_BYTES_MAX} are allowed")
    return data


def encode_crc_property(crc: int) -> str:
    """The property that some brokers end a record with: ten digits, the least significant first."""
    return f"{CRC32}\x01{f'{crc:010}'[::-1]}\x02"


def message_properties(message: Message) -> dict[str, str]:
    """All the properties a message travels with: the user's, and those its fields stand for."""
    properties = dict(message.properties)
    if message.tags:
        properties[TAGS] = message.tags
    if message.keys:
        properties[KEYS] = " ".join(message.keys)
    if message.delay_level:
        properties[DELAY] = str(message.delay_level)
    if message.delay_seconds is not None:
        properties[TIMER_DELAY_SEC] = str(message.delay_seconds)
    if message.delay_ms is not None:
        properties[TIMER_DELAY_MS] = str(message.delay_ms)
    if message.deliver_at_ms is not None:
        properties[TIMER_DELIVER_MS] = str(message.deliver_at_ms)
    if message.sharding_key:
        properties[SHARDING_KEY] = message.sharding_key
    properties[WAIT] = "true" if message.wait_store_ok else "false"  # Java writes both
    return properties


KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
ORIGIN_GROUP = "ORIGIN_GROUP"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
TRANS_OFFSET = "TRANS_OFFSET"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
CONSUME_START_TIME = "CONSUME_START_TIME"
PRIORITY = "_SYS_MSG_PRIORITY_"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID = "__transactionId__"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
LITE_TOPIC = "__LITE_TOPIC"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT = "REDIRECT"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TRACE_CONTEXT = "TRACE_CONTEXT"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_ROLL_LABEL = "TIMER_ROLL_LABEL"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
START_DELIVER_TIME = "__STARTDELIVERTIME"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
CRC32 = "__CRC32#"
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."  # names that begin so never leave the client

# What Message.putUserProperty refuses (MessageConst.STRING_HASH_SET). Not all of the names above:
# a user routes to light queues with INNER_MULTI_DISPATCH, for one.
RESERVED_NAMES = frozenset(
    {
        *(KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QID, TRAN_MSG, PGROUP),
        *(MIN_OFFSET, MAX_OFFSET, BUYER_ID, ORIGIN_MESSAGE_ID, TRANSFER_FLAG, CORRECTION_FLAG),
        *(MQ2_FLAG, RECONSUME_TIME, MAX_RECONSUME_TIMES, MSG_REGION, TRACE_ON, UNIQ_KEY),
        *(EXTEND_UNIQ_INFO, CONSUME_START_TIME, DUP_INFO, TRAN_PREPARED_QUEUE_OFFSET),
        *(INSTANCE_ID, CORRELATION_ID, REPLY_TO_CLIENT, TTL, MSG_TYPE, ARRIVE_TIME),
        *(PUSH_REPLY_TIME, CLUSTER, POP_CK, POP_CK_OFFSET, FIRST_POP_TIME),
        *(INNER_MULTI_QUEUE_OFFSET, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS),
        *(TIMER_OUT_MS, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES),
        *(TIMER_DELAY_LEVEL, TIMER_DEL_UNIQKEY, BORN_HOST, BORN_TIMESTAMP, DLQ_ORIGIN_TOPIC),
        *(DLQ_ORIGIN_MESSAGE_ID, CRC32),
    }
)
