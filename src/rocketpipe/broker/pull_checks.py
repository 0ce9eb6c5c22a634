"""May this pull be served, and which messages does it want? Apache's checks, in its order."""

from functools import lru_cache, partial
from typing import NamedTuple

from rocketpipe.broker.checks import FAQ
from rocketpipe.broker.clients import Clients
from rocketpipe.broker.groups import SubscriptionGroups
from rocketpipe.broker.message_filter import (
    EVERYTHING,
    MessageFilter,
    is_tag_type,
    requested_filter,
    subscribed_filter,
    unparsable_filter,
    unsupported_filter,
)
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.topics import TopicConfigs
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.heartbeat import MessageModel, SubscriptionData
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import TopicConfig
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.java_text import read_integer
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, PullMessage

READ_FORBIDDEN = 1 << 2  # the bit of a group's forbidden topics that forbids reading (PermName)


class Pull(NamedTuple):
    """The header of a pull, read by hand: the generic reader takes several times as long."""

    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    sub_version: int
    bytes_max: int | None
    subscription: str | None
    expression_type: str | None


# Most numbers of a header are few and small.
_int32 = lru_cache(maxsize=1024)(partial(read_integer, bits=32))
_int64 = partial(read_integer, bits=64)


def read_pull(request: RemotingCommand) -> Pull:
    """The header of a pull, or MalformedHeader."""
    ext = request.ext_fields
    get = ext.get
    try:
        bytes_max = get("maxMsgBytes")
        return Pull(
            ext["consumerGroup"],
            ext["topic"],
            _int32(ext["queueId"]),
            _int64(ext["queueOffset"]),
            _int32(ext["maxMsgNums"]),
            _int32(ext["sysFlag"]),
            _int64(ext["commitOffset"]),
            _int64(ext["suspendTimeoutMillis"]),
            _int64(ext["subVersion"]),
            _int32(bytes_max) if bytes_max is not None else None,
            get("subscription"),
            get("expressionType"),
        )
    except (KeyError, ValueError):
        # The generic reader finds the same fault and says it in the words of all others.
        PullMessage.from_ext_fields(ext)
        raise


class Admitted(NamedTuple):
    """A pull that may be served: from where, for whom, and what it wants."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    filter: MessageFilter


class PullChecks:
    """PullMessageProcessor.processRequest, as far as it decides."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        clients: Clients,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients

    def admit(self, pull: Pull, code: int, consumer: str) -> Admitted:
        """What to serve the pull with, or a Refusal."""
        settings = self._settings
        if Perm.READ not in settings.broker_permission:
            raise _forbidden(1, f"the broker[{settings.host}] pulling message is forbidden")
        if code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull_message_enable:
            raise _forbidden(1, f"the broker[{settings.host}] for lite pull consumer is forbidden")
        group = self._groups.find(pull.group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{pull.group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _forbidden(2, f"subscription group no permission, {pull.group}")
        topic = self._topics.table.get(pull.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{pull.topic}] not exist, apply first please! {FAQ}",
            )
        if Perm.READ not in topic.perm:
            raise _forbidden(3, f"the topic[{pull.topic}] pulling message is forbidden")
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{consumer}]",
            )
        if pull.sys_flag & PULL_SUBSCRIPTION:
            expression_type, wanted = pull.expression_type, _requested(pull)
        else:
            subscription = self._subscription(pull, group)
            expression_type, wanted = subscription.expression_type, subscribed_filter(subscription)
        if not (is_tag_type(expression_type) or settings.enable_property_filter):
            raise unsupported_filter(expression_type)
        return Admitted(topic, group, wanted)

    def count_max(self, pull: Pull) -> int:
        """How many messages it may get."""
        most = self._settings.max_transfer_count_on_message_in_memory
        return max(1, min(pull.count_max, most))

    def bytes_max(self, pull: Pull) -> int:
        """How many bytes of them."""
        most = self._settings.max_transfer_bytes_on_message_in_memory
        wanted = pull.bytes_max
        return wanted if wanted is not None and 0 < wanted < most else most

    def _subscription(self, pull: Pull, config: SubscriptionGroupConfig) -> SubscriptionData:
        """What the group's heartbeats say it wants of the topic."""
        group = self._clients.consumers.get(pull.group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}"
            )
        is_broadcasting = group.data.message_model is MessageModel.BROADCASTING
        if is_broadcasting and not config.consume_broadcast_enable:
            raise _forbidden(
                4, f"the consumer group[{pull.group}] can not consume by broadcast way"
            )
        if self._groups.forbidden.get(pull.group, {}).get(pull.topic, 0) & READ_FORBIDDEN:
            raise _forbidden(
                5, f"the consumer group[{pull.group}] is forbidden for topic[{pull.topic}]"
            )
        subscription = group.subscriptions.get(pull.topic)
        if subscription is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}"
            )
        if subscription.sub_version < pull.sub_version:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return subscription


def _requested(pull: Pull) -> MessageFilter:
    try:
        return requested_filter(pull.subscription, pull.expression_type)
    except InvalidSetting as error:
        if pull.subscription and not is_tag_type(pull.expression_type):
            return EVERYTHING  # so does Apache's: only an assertion of its code looks at this
        raise unparsable_filter() from error


def _forbidden(kind: int, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind)})
