"""Messages that a consumer could not handle and sends back: to come again, or to be laid aside."""

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.checks import no_such_group
from rocketpipe.broker.groups import SubscriptionGroups
from rocketpipe.broker.names import dlq_topic, retry_topic
from rocketpipe.broker.putting import Puts, redraft
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.topics import UNIT_SUB, TopicConfigs
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import TopicConfig
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    encode_properties,
)
from rocketpipe.wire.record import decode_record
from rocketpipe.wire.requests.sending import ConsumerSendMsgBack

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

FIRST_RETRY_LEVEL = 3  # 10 seconds


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _SendBackProcessor(
        broker.settings,
        broker.topics,
        broker.groups,
        broker.store,
        broker.puts,
        store_host=broker.store_host,
        dice=broker.dice,
    )
    return {RequestCode.CONSUMER_SEND_MSG_BACK: processor.send_back}


class _SendBackProcessor:
    """AbstractSendMessageProcessor.consumerSendMsgBack: its checks in its order and words."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        store: MessageStore,
        puts: Puts,
        *,
        store_host: bytes,
        dice: random.Random,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._store = store
        self._puts = puts
        self._store_host = store_host
        self._dice = dice

    async def send_back(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = ConsumerSendMsgBack.from_ext_fields(request.ext_fields)
        if self._settings.is_slave:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while",
            )
        group = self._groups.find(header.group)
        if group is None:
            raise no_such_group(header.group)
        if Perm.WRITE not in self._settings.broker_permission:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.host}] sending message is forbidden",
            )
        if group.retry_queue_nums > 0:
            await self._store_again(header, group)
        return request.answer(ResponseCode.SUCCESS)

    async def _store_again(
        self, header: ConsumerSendMsgBack, group: SubscriptionGroupConfig
    ) -> None:
        flag = UNIT_SUB if header.unit_mode else 0
        retry = self._create(retry_topic(group.group_name), group.retry_queue_nums, flag)
        if Perm.WRITE not in retry.perm:
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"the topic[{retry.topic_name}] sending message is forbidden",
            )
        message = self._find(header.offset)
        properties = dict(message.properties)
        properties.setdefault(RETRY_TOPIC, message.topic)
        properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_message_id)
        properties[WAIT] = "false"
        times_max = header.max_reconsume_times
        if times_max is None:
            times_max = group.retry_max_times
        if message.reconsume_times >= times_max or header.delay_level < 0:
            topic, queue_id, level = dlq_topic(group.group_name), 0, 0
            self._create(topic, 1, 0)
        else:
            topic, queue_id = retry.topic_name, self._dice.randrange(group.retry_queue_nums)
            level = header.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        properties[DELAY] = str(level)
        result = await self._puts.put_and_wait(
            redraft(
                message,
                topic=topic,
                queue_id=queue_id,
                properties=encode_properties(properties),
                store_host=self._store_host,
                reconsume_times=message.reconsume_times + 1,
                prepared_transaction_offset=0,
            )
        )
        if not result.is_stored:
            raise Refusal(ResponseCode.SYSTEM_ERROR, result.status.name)

    def _create(self, topic: str, queue_nums: int, flag: int) -> TopicConfig:
        config = self._topics.create_inner(topic, queue_nums, topic_sys_flag=flag)
        if config is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] not exist")
        return config

    def _find(self, physical_offset: int) -> StoredMessage:
        record = self._store.record_at(physical_offset)
        if record is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {physical_offset}"
            )
        return decode_record(record, decompressing=False)
