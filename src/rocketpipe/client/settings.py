"""The settings of clients, with RocketMQ's defaults."""

import os
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Literal

from rocketpipe.client.queue_choice import PolicySettings, policy_settings
from rocketpipe.client.setting_checks import require_count, require_positive, require_type
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.wire.compression import Compression
from rocketpipe.wire.signature import Credentials

NAMESRV_VARIABLE = "NAMESRV_ADDR"
GROUP_CHARACTERS_MAX = 255  # 120 from 5.4.0 on, whose brokers say so themselves
DEFAULT_INSTANCE_NAME = "DEFAULT"

_GROUP = re.compile(r"[%|a-zA-Z0-9_-]+")


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """What every client needs to find its cluster and be known there.

    Clients whose settings of this class are equal share connections, routes and heartbeats.
    """

    namesrv: str | Sequence[str] | None = None
    """The NameServers: `host:port`, several separated by `;` or `,` or in a list. By default those
    in the environment variable NAMESRV_ADDR."""
    instance_name: str = DEFAULT_INSTANCE_NAME
    """Part of the client id; DEFAULT stands for the process id and a number, so that no two clients
    of one process are alike."""
    unit_name: str | None = None
    """Part of the client id, where a cluster is divided into units."""
    credentials: Credentials | None = None
    """Who we are, where brokers check (ACL). Every request is signed with them."""
    tls: TlsSettings | None = None
    """Speak TLS with NameServers and brokers."""
    request_timeout: float = 3.0
    """For a NameServer's or broker's answer to anything but a send."""
    poll_name_server_interval: float = 30.0
    """Every route in use is asked for anew this often."""
    heartbeat_broker_interval: float = 30.0
    silent_connection_timeout: float = 3.0
    """When an answer is overdue, a connection that gave no sign of life for so long is cut, and
    the next request makes a new one."""
    remoting: RemotingSettings = field(default_factory=RemotingSettings)
    """The limits of each connection, among them the requests and bytes in flight."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "namesrv", self._namesrv())
        require_type(self, Credentials | None, "credentials")
        require_type(self, TlsSettings | None, "tls")
        require_type(self, RemotingSettings, "remoting")
        require_positive(
            self,
            "request_timeout",
            "poll_name_server_interval",
            "heartbeat_broker_interval",
            "silent_connection_timeout",
        )
        for name in ("instance_name", "unit_name"):
            value = getattr(self, name)
            if name == "unit_name" and value is None:
                continue
            if not isinstance(value, str) or not value or not value.isprintable():
                raise InvalidSetting(f"{name} is {value!r}: it must be printable text")

    @property
    def name_servers(self) -> tuple[Address, ...]:
        """The addresses that `namesrv` names."""
        assert isinstance(self.namesrv, str)
        return tuple(Address.parse(each) for each in self.namesrv.split(";"))

    def client_settings(self) -> "ClientSettings":
        """The part that is about the client as a whole."""
        return ClientSettings(
            **{each.name: getattr(self, each.name) for each in fields(ClientSettings)}
        )

    def _namesrv(self) -> str:
        given = self.namesrv if self.namesrv is not None else os.environ.get(NAMESRV_VARIABLE)
        if given is None:
            raise InvalidSetting(f"no NameServer: give namesrv, or set {NAMESRV_VARIABLE}")
        texts: object = re.split("[;,]", given) if isinstance(given, str) else given
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            raise InvalidSetting(f"namesrv is {given!r}: it must be text, or a list of texts")
        addresses = [Address.parse(text.strip()) for text in texts if text.strip()]
        if not addresses:
            raise InvalidSetting(f"namesrv is {given!r}: it names no NameServer")
        return ";".join(str(address) for address in dict.fromkeys(addresses))


@dataclass(frozen=True)
class ProducerSettings(ClientSettings):
    """What a producer does, and how long it takes at most."""

    producer_group: str
    _: KW_ONLY
    namespace: str | None = None
    """Put before topics and groups on the wire, so that several users can share a cluster."""
    create_topic_key: str = "TBW102"
    """The topic whose route and settings a topic that does not exist yet takes after."""
    default_topic_queue_nums: int = 4
    """How many queues such a topic gets on each broker, at most."""
    send_timeout: float = 3.0
    """For a whole send, with all its attempts."""
    attempt_timeout: float | Literal["fair"] | None = "fair"
    """For one attempt: a fair share of the time that is left, a number of seconds, or None for all
    of it, as in Java, where one dead broker may use up the time of them all. A later answer still
    counts, until the deadline of the send."""
    retry_times: int = 2
    """How many more attempts there may be after the first."""
    retry_another_broker_when_not_store_ok: bool = False
    """Whether a status other than SEND_OK counts as a failed attempt. The message is stored all the
    same, so it will be there twice."""
    busy_pause: float = 0.1
    """How long to wait about, in seconds, before the attempt that follows a SYSTEM_BUSY; twice as
    long after each more."""
    policy: str | PolicySettings = "round-robin"
    """How queues are chosen: round-robin, java4, java5, peak-ewma, or the settings of one."""
    compress_body_bytes_min: int = 4096
    compression: Compression | str = Compression.ZLIB
    """zlib, lz4 or zstd, for bodies of so many bytes and more."""
    message_bytes_max: int = 4 * 1024 * 1024
    """Of a body, or of a whole batch."""
    vip_channel: bool = False
    """Send to the port two below the brokers' own, which serves no pulls."""
    batch_messages_max: int = 256
    """How many neighbours `send_many` puts into one batch, at most; 1 sends each by itself."""
    batch_bytes_max: int = 256 * 1024
    """How large such a batch may be."""
    batches_in_flight_max: int = 16
    """How many of them `send_many` keeps on their way at once."""
    async_sends_in_flight_max: int = 65535
    """How many `send_async` of a blocking producer lets be on their way; the next one blocks."""
    trace: bool = False
    """Write a trace of each send to the trace topic, in RocketMQ's own format."""
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    listener_threads_max: int = 16
    """In how many threads the plain functions of a transaction listener may run, as they may block.
    Coroutines run on the event loop."""
    transaction_checks_max: int = 1
    """How many of the brokers' questions about transactions a listener is asked at a time."""
    transaction_checks_waiting_max: int = 2000
    """How many more may wait; what is over that is dropped, and the broker asks again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_group("producer_group", self.producer_group)
        if self.producer_group == "DEFAULT_PRODUCER":
            raise InvalidSetting("producer_group is DEFAULT_PRODUCER: choose a name of your own")
        for name in ("create_topic_key", "trace_topic"):
            check_group(name, getattr(self, name))  # the same rule
        if self.namespace is not None:
            check_group("namespace", self.namespace)
        require_type(self, bool, "retry_another_broker_when_not_store_ok", "vip_channel", "trace")
        require_positive(self, "send_timeout", "busy_pause")
        if self.attempt_timeout not in (None, "fair"):
            require_positive(self, "attempt_timeout")
        require_count(
            self,
            "default_topic_queue_nums",
            "message_bytes_max",
            "batch_messages_max",
            "batch_bytes_max",
            "batches_in_flight_max",
            "async_sends_in_flight_max",
            "listener_threads_max",
            "transaction_checks_max",
        )
        require_count(
            self,
            "retry_times",
            "compress_body_bytes_min",
            "transaction_checks_waiting_max",
            minimum=0,
        )
        policy_settings(self.policy)
        self.body_compression.require_library()

    @property
    def body_compression(self) -> Compression:
        """How bodies are compressed that are large enough for it."""
        try:
            return Compression(self.compression)
        except ValueError:
            known = ", ".join(Compression)
            raise InvalidSetting(f"compression is {self.compression!r}: {known} exist") from None


def check_group(name: str, group: object) -> None:
    """InvalidSetting unless brokers would take it for the name of a group."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise InvalidSetting(f"{name} is {group!r}: it takes letters, digits, %, |, _ and -")
    if len(group) > GROUP_CHARACTERS_MAX:
        raise InvalidSetting(
            f"{name} has {len(group)} characters; {GROUP_CHARACTERS_MAX} are allowed"
        )
