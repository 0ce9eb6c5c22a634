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
        connection = ConnectionOptions.parse(parser)
        topic = parser.text("topic")
        if topic is not None:
            try:
                check_topic(topic)
            except InvalidMessage as error:
                raise InvalidSetting(f"option topic: {error}") from None
        job_id = parser.text("jobId")
        if job_id is not None and is_stream:
            raise InvalidSetting("option jobId is for batch writes: a stream has its query's id")
        statuses = _statuses(parser)
        producer = _producer(parser, connection)
        parser.finish(*_SPARKS_OWN)
        return cls(topic=topic, job_id=job_id, accepted_statuses=statuses, producer=producer)


def _statuses(parser: OptionParser) -> frozenset[SendStatus]:
    names = parser.texts("acceptedStatuses") or ("SEND_OK",)
    known = {each.name: each for each in SendStatus}
    for name in names:
        if name.upper() not in known:
            raise wrong("acceptedStatuses", name, f"some of {', '.join(known)}")
    return frozenset(known[name.upper()] for name in names)


def _producer(parser: OptionParser, connection: ConnectionOptions) -> ProducerSettings:
    given = _Given(parser)
    settings = {
        "policy": parser.choice("producer.policy", tuple(POLICIES), "round-robin"),
        "send_timeout": parser.seconds("producer.sendTimeout", SEND_TIMEOUT),
        "attempt_timeout": _attempt_timeout(parser),
        "batch_messages_max": parser.count("producer.batchMessagesMax", BATCH_MESSAGES_MAX),
        **given.counts("batch_bytes_max", "batches_in_flight_max", "message_bytes_max"),
        **given.counts("default_topic_queue_nums"),
        **given.counts("retry_times", "compress_body_bytes_min", minimum=0),
        **given.flags("retry_another_broker_when_not_store_ok", "vip_channel", "trace"),
        **given.texts("create_topic_key", "trace_topic", "unit_name", "instance_name"),
        "busy_pause": parser.seconds("producer.busyPause", ProducerSettings.busy_pause),
        "compression": parser.choice("producer.compression", tuple(Compression), "zlib"),
    }
    try:
        return ProducerSettings(
            parser.group("producer.group", DEFAULT_GROUP) or DEFAULT_GROUP,
            namespace=connection.namespace,
            **connection.client_settings(),
            **settings,
        )
    except InvalidSetting as error:
        raise InvalidSetting(f"options of the producer: {error}") from None


def _attempt_timeout(parser: OptionParser) -> Any:
    word = parser.text("producer.attemptTimeout", "fair")
    assert word is not None
    if word.lower() in ("fair", "none"):
        return "fair" if word.lower() == "fair" else None
    return parser.seconds("producer.attemptTimeout", SEND_TIMEOUT)


class _Given:
    """The producer's settings that need nothing but a type, by their names there: `producer.` and
    the name in camel case; those that are not given keep the producer's defaults."""

    def __init__(self, parser: OptionParser) -> None:
        self._parser = parser

    def counts(self, *names: str, minimum: int = 1) -> dict[str, int]:
        values = {name: self._parser.maybe_count(_option(name), minimum=minimum) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def flags(self, *names: str) -> dict[str, bool]:
        return {name: self._parser.flag(_option(name), False) for name in names}

    def texts(self, *names: str) -> dict[str, str]:
        values = {name: self._parser.text(_option(name)) for name in names}
        return {name: value for name, value in values.items() if value is not None}


def _option(setting: str) -> str:
    first, *others = setting.split("_")
    return "producer." + first + "".join(map(str.capitalize, others))
