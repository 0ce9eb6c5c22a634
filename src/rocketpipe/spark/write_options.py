"""The options of the sink: `df.write` and `df.writeStream`, `.format("rocketmq")`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rocketpipe.client.checks import check_topic
from rocketpipe.client.queue_choice import POLICIES
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import InvalidMessage, InvalidSetting
from rocketpipe.message import SendStatus
from rocketpipe.spark.options import ConnectionOptions, OptionParser, wrong
from rocketpipe.wire.compression import Compression

DEFAULT_GROUP = "rocketpipe-spark"
SEND_TIMEOUT = 30.0  # a task that fails costs more than one that waits
BATCH_MESSAGES_MAX = 1024

_SPARKS_OWN = ("checkpointLocation",)


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """What a write does. It travels to every task, so it can be pickled."""

    topic: str | None  # of all rows, whatever their own column says
    job_id: str | None
    accepted_statuses: frozenset[SendStatus]
    producer: ProducerSettings

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool) -> Self:
        """InvalidSetting for what can't be used, by the option's name."""
        parser = OptionParser(options)
        parsed = cls.read(parser)
        parser.finish(*_SPARKS_OWN)
        if parsed.job_id is not None and is_stream:
            raise InvalidSetting("option jobId is for batch writes: a stream has its query's id")
        return parsed

    @classmethod
    def read(cls, parser: OptionParser) -> Self:
        connection = ConnectionOptions.parse(parser)
        topic = parser.text("topic")
        if topic is not None:
            try:
                check_topic(topic)
            except InvalidMessage as error:
                raise InvalidSetting(f"option topic: {error}") from None
        return cls(
            topic=topic,
            job_id=parser.text("jobId"),
            accepted_statuses=_statuses(parser),
            producer=_producer(parser, connection),
        )


def _statuses(parser: OptionParser) -> frozenset[SendStatus]:
    names = parser.texts("acceptedStatuses") or ("SEND_OK",)
    known = {each.name: each for each in SendStatus}
    for name in names:
        if name.upper() not in known:
            raise wrong("acceptedStatuses", name, f"some of {', '.join(known)}")
    return frozenset(known[name.upper()] for name in names)


def _producer(parser: OptionParser, connection: ConnectionOptions) -> ProducerSettings:
    settings: dict[str, Any] = {
        "batch_messages_max": BATCH_MESSAGES_MAX,
        "policy": parser.choice("producer.policy", tuple(POLICIES), "round-robin"),
        "compression": parser.choice("producer.compression", tuple(Compression), "zlib"),
        "attempt_timeout": _attempt_timeout(parser),
    }
    given: dict[str, Any] = {
        **{name: parser.maybe_count(_option(name), minimum=n) for name, n in _COUNTS.items()},
        **{name: parser.seconds(_option(name), default) for name, default in _SECONDS.items()},
        **{name: parser.text(_option(name)) for name in _TEXTS},
        **{name: parser.flag(_option(name), False) for name in _FLAGS},
    }
    settings |= {name: value for name, value in given.items() if value is not None}
    try:
        return ProducerSettings(
            parser.group("producer.group") or DEFAULT_GROUP,
            namespace=connection.namespace,
            **connection.client_settings(),
            **settings,
        )
    except InvalidSetting as error:
        raise InvalidSetting(f"options of the producer: {error}") from None


def _attempt_timeout(parser: OptionParser) -> Any:
    word = (parser.text("producer.attemptTimeout") or "fair").lower()
    if word in ("fair", "none"):
        return None if word == "none" else word
    return parser.seconds("producer.attemptTimeout", SEND_TIMEOUT)


# Settings of the producer that are options by the same name, in camel case behind `producer.`.
_COUNTS = {  # and the least they may be
    "batch_messages_max": 1,
    "batch_bytes_max": 1,
    "batches_in_flight_max": 1,
    "message_bytes_max": 1,
    "compress_body_bytes_min": 0,
    "default_topic_queue_nums": 1,
    "retry_times": 0,
}
_SECONDS = {"send_timeout": SEND_TIMEOUT, "busy_pause": ProducerSettings.busy_pause}
_FLAGS = ("retry_another_broker_when_not_store_ok", "vip_channel", "trace")
_TEXTS = ("create_topic_key", "trace_topic", "instance_name", "unit_name")


def _option(setting: str) -> str:
    first, *others = setting.split("_")
    return "producer." + first + "".join(map(str.capitalize, others))
