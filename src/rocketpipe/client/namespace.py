"""Namespaces: a name put before topics and groups, so that several users can share a cluster.

Java's NamespaceUtil: `orders` becomes `shop%orders`, and `%RETRY%group` becomes
`%RETRY%shop%group`. Topics of the system belong to everybody.
"""

_PREFIXES = ("%RETRY%", "%DLQ%")
_SYSTEM_PREFIX = "rmq_sys_"
_SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)


def with_namespace(namespace: str | None, name: str) -> str:
    """The name on the wire of a topic or group."""
    if not namespace or name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX):
        return name
    prefix, bare = _split(name)
    if bare.startswith(f"{namespace}%"):
        return name  # it is there already
    return f"{prefix}{namespace}%{bare}"


def without_namespace(namespace: str | None, name: str) -> str:
    """The user's own name of a topic or group on the wire."""
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(f"{namespace}%") if namespace else name


def _split(name: str) -> tuple[str, str]:
    prefix = next((each for each in _PREFIXES if name.startswith(each)), "")
    return prefix, name.removeprefix(prefix)
