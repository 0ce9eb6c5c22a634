"""Requests of every code as somebody might send them who is broken, mad or malicious; by seed."""

import json
import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketpipe.broker.faults import CONTROL_FAULTS, FaultKind
from rocketpipe.codes import RequestCode
from rocketpipe.errors import MalformedData
from rocketpipe.message import MessageQueue
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.groups import (
    CheckClientConfig,
    GroupRequestMode,
    LockBatchRequest,
    MessageRequestMode,
    QueryAssignmentRequest,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from rocketpipe.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketpipe.wire.bodies.pop import BatchAck, BatchAckRequest, bit_set
from rocketpipe.wire.bodies.route import BrokerData, Perm, QueueData, TopicRouteData
from rocketpipe.wire.bodies.topics import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigList,
    TopicConfigSerializeWrapper,
)
from rocketpipe.wire.frame import RemotingCommand, SerializeType
from rocketpipe.wire.headers import _slots
from rocketpipe.wire.requests.sending import EndTransaction
from rocketpipe.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.all_requests import REQUESTS

UNKNOWN_CODES = (-1, 0, 1, 9999, 32767, CONTROL_FAULTS, 0x7FFFFFFF, -0x80000000)
CODES: Sequence[int] = (*RequestCode, *UNKNOWN_CODES)

_TOPIC, _GROUP, _CLIENT = "orders", "readers", "10.0.0.7@1"
# As another process orders it where that is allowed; all that a fault can have is in it.
FAULT = {
    "kind": "refuse",
    "code": [RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE],
    "topic": _TOPIC,
    "times": 3,
    "seconds": 5.0,
    "delay": [0.1, 0.5],
    "response_code": 2,
    "remark": "no",
    "id": 1,
    "hits": 0,
}
_QUEUE = MessageQueue(_TOPIC, "broker-a", 0)
_PLACE = "0A00000100002A9F0000000000000000"  # of the first message of the log

# What each field holds when all is well; what is not named here gets what its type needs.
_FIELDS = {
    "topic": _TOPIC,
    "default_topic": "TBW102",
    "group": _GROUP,
    "group_name": _GROUP,
    "consumer_group": _GROUP,
    "producer_group": "senders",
    "src_group": _GROUP,
    "dest_group": "others",
    "broker_name": "broker-a",
    "extra_info": "0 1750000000000 60000 0 0 broker-a 0 0",
    "cluster": "DefaultCluster",
    "cluster_name": "DefaultCluster",
    "broker_addr": "10.0.0.1:10911",
    "ha_server_addr": "10.0.0.1:10912",
    "client_id": _CLIENT,
    "queue_id": "0",
    "broker_id": "0",
    "offset": "0",
    "queue_offset": "0",
    "body_crc32": "0",
    "compressed": "false",
    "batch": "false",
    "perm": "6",
    "topic_filter_type": "SINGLE_TAG",
    "attributes": "+message.type=NORMAL",
    "properties": "UNIQ_KEY\x01U1\x02KEYS\x01k1 k2\x02TAGS\x01t\x02",
    "subscription": "*",
    "expression_type": "TAG",
    "sys_flag": "4",
    "suspend_timeout_millis": "1000",
    "topic_list": f"{_TOPIC};{_TOPIC}",
    "msg_id": _PLACE,
    "offset_msg_id": _PLACE,
    "commit_or_rollback": "8",
    "key": "k1",
}

_VALUES = (
    *("", " ", "0", "-1", "1", "65535", "65536", "2147483647", "-2147483648", "2147483648"),
    *("9223372036854775807", "-9223372036854775808", "9" * 30, "1e9", "0x10", "1_000", "٣"),
    *("true", "TRUE", "null", "NaN", "{}", "[]", "%", "%RETRY%readers", "%DLQ%readers", "TBW102"),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "..", "../../..", "/", "/tmp/x", "a/b"),
    *("a\0b", "\x01\x02", "\x02\x01", "DELAY\x01-9\x02", "DELAY\x0199999999999\x02"),
    *("TRAN_MSG\x01true\x02", "TIMER_DELAY_SEC\x019999999999999\x02", "REPLY_TO_CLIENT\x01x\x02"),
    *("||", "a || b", "x" * 300, "ü" * 200, "\U0001f600", "y" * 70_000, "orders;" * 5000),
)
_JSON_VALUES: Sequence[object] = (
    *(None, True, -1, 0, (1 << 31) - 1, 1 << 31, 1 << 63, 1 << 70, 1.5, [], {}, [[]]),
)


def _bodies() -> dict[int, bytes]:
    """The body of each request that has one, when all is well."""
    topics = TopicConfigSerializeWrapper(
        topic_config_table={_TOPIC: TopicConfig(topic_name=_TOPIC)}, data_version=DataVersion()
    )
    subscription = SubscriptionData.of_tags(_TOPIC, "a || b", sub_version=1)
    consumer = ConsumerData(
        group_name=_GROUP,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=(subscription,),
    )
    group = SubscriptionGroupConfig(group_name=_GROUP)
    broker = BrokerData(
        cluster="DefaultCluster", broker_name="broker-a", broker_addrs={0: "10.0.0.1:10911"}
    )
    perm = Perm.READ | Perm.WRITE
    queues = QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=perm)
    lock = LockBatchRequest(client_id=_CLIENT, consumer_group=_GROUP, mq_set=frozenset({_QUEUE}))
    batch = encode_batch([BatchMember(b"%d" % n, {"UNIQ_KEY": f"B{n}"}) for n in range(3)])
    bodies: dict[int, Body | bytes] = {
        RequestCode.SEND_MESSAGE: b"hello",
        RequestCode.SEND_MESSAGE_V2: b"hello",
        RequestCode.SEND_BATCH_MESSAGE: batch,
        RequestCode.SEND_REPLY_MESSAGE: b"hello",
        RequestCode.SEND_REPLY_MESSAGE_V2: b"hello",
        RequestCode.HEART_BEAT: HeartbeatData(
            client_id=_CLIENT,
            producer_data_set=(ProducerData(group_name="senders"),),
            consumer_data_set=(consumer,),
        ),
        RequestCode.LOCK_BATCH_MQ: lock,
        RequestCode.UNLOCK_BATCH_MQ: lock,
        RequestCode.CHECK_CLIENT_CONFIG: CheckClientConfig(
            client_id=_CLIENT, group=_GROUP, subscription_data=subscription
        ),
        RequestCode.BATCH_ACK_MESSAGE: BatchAckRequest(
            broker_name="broker-a",
            acks=(BatchAck(consumer_group=_GROUP, topic=_TOPIC, bit_set=bit_set([0, 1])),),
        ),
        RequestCode.QUERY_ASSIGNMENT: QueryAssignmentRequest(
            topic=_TOPIC, consumer_group=_GROUP, client_id=_CLIENT, strategy_name="AVG"
        ),
        RequestCode.SET_MESSAGE_REQUEST_MODE: GroupRequestMode(
            topic=_TOPIC, consumer_group=_GROUP, mode=MessageRequestMode.POP
        ),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: SubscriptionGroupList(
            group_config_list=(group,)
        ),
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: TopicConfigList(
            topic_config_list=(TopicConfig(topic_name=_TOPIC),)
        ),
        RequestCode.UPDATE_BROKER_CONFIG: b"waitTimeMillsInSendQueue=200\n",
        RequestCode.UPDATE_NAMESRV_CONFIG: b"enableTopicList=true\n",
        RequestCode.REGISTER_BROKER: RegisterBrokerBody(topic_config_serialize_wrapper=topics),
        RequestCode.QUERY_DATA_VERSION: DataVersion(),
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: TopicRouteData(
            broker_datas=(broker,), queue_datas=(queues,)
        ),
        CONTROL_FAULTS: json.dumps({"add": FAULT}).encode(),
    }
    return {code: b if isinstance(b, bytes) else b.encode() for code, b in bodies.items()}


_BODIES = _bodies()
_BOMB = zlib.compress(bytes(64 << 20))


@dataclass(frozen=True, slots=True)
class Garbage:
    """Bytes for a connection, and whether they have to be answered, if it is not cut."""

    data: bytes
    opaque: int
    needs_answer: bool
    is_frame: bool  # else nobody knows where the next one begins


class GarbageMaker:
    """Makes requests of one code, most of them wrong in some way."""

    def __init__(self, code: int, dice: random.Random) -> None:
        self._code = code
        self._dice = dice
        self.fields = _plausible_fields(code)
        self._body = _BODIES.get(code, b"")

    def make(self, opaque: int) -> Garbage:
        dice = self._dice
        kind = dice.choice(list(SerializeType))
        command = RemotingCommand(self._code, dict(self.fields), self._body, opaque=opaque)
        command.serialize_type = kind
        for _ in range(dice.choice([0, 1, 1, 2, 4])):
            self._break_field(command)
        if dice.random() < 0.5:
            command.body = self._broken_body()
        needs_answer = not _leaves_a_transaction_open(command)
        if dice.random() < 0.1:
            command.version = dice.choice([0, 36, 37, 401, 32767])
        if dice.random() < 0.05:
            command.flag = dice.choice([1, 2, 3, -1, 0x7FFFFFFE])  # an answer, or one-way
            needs_answer = needs_answer and not command.is_response and not command.is_oneway
        data = command.encode()
        if dice.random() < 0.1:
            return Garbage(self._broken_frame(data), opaque, needs_answer=False, is_frame=False)
        return Garbage(data, opaque, needs_answer, is_frame=True)

    def fault_order(self) -> bytes:
        """An order that a broker's control of faults may have to obey, or that is a little off."""
        dice = self._dice
        chosen = {name: value for name, value in FAULT.items() if dice.random() < 0.5}
        order: object = {"add": {**chosen, "kind": dice.choice(list(FaultKind))}}
        for _ in range(dice.choice([0, 1, 1, 2])):
            order = self._break_somewhere(order)
        return json.dumps(order).encode()

    def _break_field(self, command: RemotingCommand) -> None:
        dice, fields = self._dice, command.ext_fields
        name = dice.choice([*fields, dice.choice(list(_FIELDS)), "x" * dice.choice([1, 3000])])
        if dice.random() < 0.5 and fields.get(name) in ("true", "false"):
            fields[name] = "true" if fields[name] == "false" else "false"
        elif dice.random() < 0.2:
            fields.pop(name, None)
        elif dice.random() < 0.1:
            fields[name] = str(dice.randint(-(1 << 64), 1 << 64))
        else:
            fields[name] = dice.choice(_VALUES)

    def _broken_body(self) -> bytes:
        dice = self._dice
        body = bytearray(self._body or dice.choice(list(_BODIES.values())))
        kind = dice.randrange(8)
        if kind == 0:
            return b""
        if kind == 1:
            return dice.randbytes(dice.choice([1, 3, 100, 5000]))
        if kind == 2:
            return bytes(body[: dice.randrange(len(body))])
        if kind == 3:
            for _ in range(dice.choice([1, 3])):
                body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
            return bytes(body)
        if kind == 4:  # a length, wherever one may be
            length = dice.choice([-1, 0, 0x7FFFFFFF, -0x80000000, 1 << 24])
            at = dice.randrange(len(body))
            body[at : at + 4] = struct.pack(">i", length)
            return bytes(body)
        if kind == 5:
            return dice.choice([b"[" * 50_000, b'{"a":' * 50_000, b"[]", b"null", b"1e999", b'"x"'])
        if kind == 6:
            return dice.choice([_BOMB, zlib.compress(bytes(body)), _BOMB[: len(_BOMB) // 2]])
        return self._broken_json(bytes(body))

    def _broken_json(self, body: bytes) -> bytes:
        try:
            value = json.loads(body)
        except ValueError:
            return body * 2
        return json.dumps(self._break_somewhere(value)).encode()

    def _break_somewhere(self, value: object) -> object:
        dice = self._dice
        if isinstance(value, dict) and value and dice.random() < 0.9:
            key = dice.choice(list(value))
            return {**value, key: self._break_somewhere(value[key])}
        if isinstance(value, list) and value and dice.random() < 0.9:
            return [self._break_somewhere(value[0]), *value]
        return dice.choice([*_JSON_VALUES, *_VALUES])

    def _broken_frame(self, data: bytes) -> bytes:
        dice = self._dice
        kind = dice.randrange(5)
        if kind == 0:
            return dice.randbytes(dice.choice([1, 4, 8, 200]))
        if kind == 1:
            return struct.pack(">i", dice.choice([-1, 0, 3, 17 << 20, 0x7FFFFFFF])) + data[4:]
        if kind == 2:
            return data[:4] + struct.pack(">i", dice.choice([-1, 0, 2 << 24, 0xFFFFFF])) + data[8:]
        if kind == 3:
            at = dice.randrange(8, len(data))
            return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def _leaves_a_transaction_open(command: RemotingCommand) -> bool:
    """Whether it says of a transaction that its end is not known yet.

    Apache's broker does not answer that (EndTransactionProcessor.processRequest), so ours does not
    either. It does answer what it can't read.
    """
    if command.code != RequestCode.END_TRANSACTION:
        return False
    try:
        end = EndTransaction.from_ext_fields(command.ext_fields)
    except MalformedData:
        return False
    return end.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK)


def _plausible_fields(code: int) -> Mapping[str, str]:
    declared = REQUESTS.get(code)  # type: ignore[call-overload]  # any number may be looked up
    if declared is None:
        return {"topic": _TOPIC, "queueId": "0"}
    return {
        slot.name: _FIELDS.get(slot.attribute, "x" if slot.read is str else "1")
        for slot in _slots(declared)
    }
