"""RocketMQ for Python and Spark."""

from rocketpipe.client.allocation import by_config, by_machine_room
from rocketpipe.client.consumer.listeners import Listener, Retry
from rocketpipe.client.consumer.pull_consumer import AsyncPullConsumer
from rocketpipe.client.consumer.push_consumer import AsyncPushConsumer
from rocketpipe.client.consumer.settings import PullConsumerSettings, PushConsumerSettings
from rocketpipe.client.consumer.subscriptions import Sql92
from rocketpipe.client.fault_table import LatencyTable
from rocketpipe.client.hooks import EndTransactionContext, RecallContext, SendContext, SendHook
from rocketpipe.client.outcomes import SendOutcomes
from rocketpipe.client.parquet_recorder import ParquetRecorder
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.client.queue_choice import (
    Java4Settings,
    Java5Settings,
    PeakEwmaSettings,
    RoundRobinSettings,
)
from rocketpipe.client.recorder import AttemptRecorder, AttemptSink, JsonLinesRecorder
from rocketpipe.client.replies import reply_message
from rocketpipe.client.selectors import at_random, by_hash
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.client.transaction import (
    AsyncTransactionProducer,
    HalfMessage,
    TransactionListener,
)
from rocketpipe.message import (
    Attempt,
    Message,
    MessageQueue,
    SendResult,
    SendStatus,
    StoredMessage,
    TransactionResult,
    TransactionState,
)
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.sync.consumer import PullConsumer, PushConsumer
from rocketpipe.sync.producer import Producer, TransactionProducer
from rocketpipe.wire.signature import Credentials

__all__ = [
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncTransactionProducer",
    "Attempt",
    "AttemptRecorder",
    "AttemptSink",
    "Credentials",
    "EndTransactionContext",
    "HalfMessage",
    "Java4Settings",
    "Java5Settings",
    "JsonLinesRecorder",
    "LatencyTable",
    "Listener",
    "Message",
    "MessageQueue",
    "ParquetRecorder",
    "PeakEwmaSettings",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PullConsumerSettings",
    "PushConsumer",
    "PushConsumerSettings",
    "RecallContext",
    "RemotingSettings",
    "Retry",
    "RoundRobinSettings",
    "SendContext",
    "SendHook",
    "SendOutcomes",
    "SendResult",
    "SendStatus",
    "Sql92",
    "StoredMessage",
    "TlsSettings",
    "TransactionListener",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "at_random",
    "by_config",
    "by_hash",
    "by_machine_room",
    "reply_message",
]
