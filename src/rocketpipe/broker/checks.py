"""May this message be sent? Apache's checks, in its order, with its codes and its words."""

from rocketpipe.broker.names import FORBIDDEN_TO_SEND, RETRY_PREFIX, topic_fault
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.topics import UNIT, UNIT_SUB, TopicConfigs, describe
from rocketpipe.clock import Clock
from rocketpipe.codes import ResponseCode
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import TopicConfig

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class SendChecks:
    """AbstractSendMessageProcessor.msgCheck, and what stands before it."""

    def __init__(self, settings: BrokerSettings, topics: TopicConfigs, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock

    def topic_to_send(
        self,
        topic: str,
        queue_id: int,
        *,
        default_topic: str,
        default_topic_queue_nums: int,
        unit_mode: bool,
        producer: str,
    ) -> TopicConfig:
        """The topic, which may have been created for this, or a Refusal."""
        settings = self._settings
        begin_ms = settings.start_accept_send_request_timestamp_ms
        if begin_ms and self._clock.wall_ms() < begin_ms:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {begin_ms} ms"
            )
        # In this order, as a set of flags is slow to ask, and few topics are ordered.
        if self._topics.is_order(topic) and Perm.WRITE not in settings.broker_permission:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{settings.host}] sending message is forbidden",
            )
        config = self._topics.table.get(topic)
        # What is in the table was checked when it came there, so its name can't be wrong.
        if config is None and (fault := topic_fault(topic)):
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if topic in FORBIDDEN_TO_SEND:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        if config is None:
            config = self._create(topic, default_topic, default_topic_queue_nums, unit_mode)
        if queue_id >= config.write_queue_nums and queue_id >= config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {describe(config)} Producer: {producer}",
            )
        return config

    def _create(
        self, topic: str, default_topic: str, queue_nums: int, unit_mode: bool
    ) -> TopicConfig:
        is_retry = topic.startswith(RETRY_PREFIX)
        flag = 0 if not unit_mode else UNIT_SUB if is_retry else UNIT
        config = self._topics.create_for_send(topic, default_topic, queue_nums, topic_sys_flag=flag)
        if config is None and is_retry:
            config = self._topics.create_inner(topic, topic_sys_flag=flag)
        if config is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}"
            )
        return config


def no_such_group(group: str) -> Refusal:
    return Refusal(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
    )
