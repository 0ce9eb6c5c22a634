"""The names of topics and groups: which are RocketMQ's own, and which may be used."""

import re

AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC = "BenchmarkTest"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

# Topics a client may not send to (TopicValidator.NOT_ALLOWED_SEND_TOPIC_SET of 5.5.0). That one may
# send to the timers is a hole of Apache's: a message without a time there stops its wheel for good.
FORBIDDEN_TO_SEND = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    }
)
SYSTEM_TOPICS = FORBIDDEN_TO_SEND | {
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    TRACE_TOPIC,
    "CHECKPOINT_TOPIC",
}
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
# Consumer groups that every broker has (SubscriptionGroupManager.init).
BUILT_IN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)

TOPIC_CHARACTERS_MAX = 127
RETRY_OR_DLQ_TOPIC_CHARACTERS_MAX = 255
GROUP_CHARACTERS_MAX = 120

_is_legal = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_ALLOWED = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"


def topic_fault(topic: str) -> str | None:
    """What is wrong with a topic's name, in Apache's words (TopicValidator.validateTopic)."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _is_legal(topic):
        return f"The specified topic: {topic}, {_ALLOWED}"
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        longest = RETRY_OR_DLQ_TOPIC_CHARACTERS_MAX
        if len(topic) > longest:
            return (
                f"The specified topic is DLQ or Retry topic: {topic}, "
                f"and it's longer than topic max length: {longest}"
            )
    elif len(topic) > TOPIC_CHARACTERS_MAX:
        return (
            f"The specified topic: {topic}, is longer than topic max length: {TOPIC_CHARACTERS_MAX}"
        )
    return None


def group_fault(group: str) -> str | None:
    """What is wrong with a group's name, in Apache's words (TopicValidator.validateGroup)."""
    if not group.strip():
        return "The specified group is blank."
    if not _is_legal(group):
        return f"The specified group: {group}, {_ALLOWED}"
    if len(group) > GROUP_CHARACTERS_MAX:
        return (
            f"The specified group: {group}, is longer than group max length: {GROUP_CHARACTERS_MAX}"
        )
    return None
