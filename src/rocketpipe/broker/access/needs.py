"""Which rights a request needs under ACL 2, by 5.5.0's DefaultAuthorizationContextBuilder.

A request that is not here needs none, as in Apache's broker: whoever is known may make it. Among
those are the lite pull (361), POP's batch of acknowledgements (200151), replies (324, 325), and
changing settings of the broker (25) or of groups (200).
"""

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from rocketpipe.broker.names import RETRY_PREFIX
from rocketpipe.codes import RequestCode
from rocketpipe.wire.bodies.groups import LockBatchRequest
from rocketpipe.wire.bodies.heartbeat import HeartbeatData
from rocketpipe.wire.frame import RemotingCommand


class Kind(StrEnum):
    """Of resources."""

    ANY = "*"
    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(StrEnum):
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Need(NamedTuple):
    """A resource, and the actions one of which must be allowed on it."""

    kind: Kind
    name: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


Needs = Iterator[Need]


def needs_of(request: RemotingCommand, cluster_name: str) -> list[Need]:
    """What a request needs, in the order in which Apache's broker looks."""
    code = request.code
    if code in _SPECIAL:
        return list(_SPECIAL[code](request))
    if code in _ON_CLUSTER:
        return [Need(Kind.CLUSTER, cluster_name, (_ON_CLUSTER[code],))]
    if code in _BY_FIELDS:
        action, *names = _BY_FIELDS[code]
        return list(_named(request, Action(action), names))
    return []


def _named(request: RemotingCommand, action: Action, names: list[str]) -> Needs:
    for name in names:
        value = request.ext_fields.get(name)
        if value is None:
            continue
        if not name.startswith("topic"):
            yield Need(Kind.GROUP, value, (action,))
            continue
        for topic in value.split(";") if name == "topicList" else [value]:
            if topic.startswith(RETRY_PREFIX):
                yield _group(topic, action)
            else:
                yield Need(Kind.TOPIC, topic, (action,))


def _topic(name: str, *actions: Action) -> Need:
    return Need(Kind.TOPIC, name, actions)


def _group(name: str, *actions: Action) -> Need:
    return Need(Kind.GROUP, name.removeprefix(RETRY_PREFIX), actions)


def _topic_unless_retry(name: str, *actions: Action) -> Needs:
    """A group's retry topic is part of the group, whose right is looked at besides."""
    if not name.startswith(RETRY_PREFIX):
        yield _topic(name, *actions)


def _field(request: RemotingCommand, name: str) -> str:
    return request.ext_fields.get(name, "null")  # as Java names what is not there


def _send(topic_field: str) -> Callable[[RemotingCommand], Needs]:
    def needs(request: RemotingCommand) -> Needs:
        topic = _field(request, topic_field)
        if topic.startswith(RETRY_PREFIX):
            yield _group(topic, Action.SUB)
        else:
            yield _topic(topic, Action.PUB)

    return needs


def _recall(request: RemotingCommand) -> Needs:
    yield _topic(_field(request, "topic"), Action.PUB)


def _end_transaction(request: RemotingCommand) -> Needs:
    if topic := request.ext_fields.get("topic"):  # 4.x does not say
        yield _topic(topic, Action.PUB)


def _send_back(request: RemotingCommand) -> Needs:
    yield _group(_field(request, "group"), Action.SUB)


def _pull(request: RemotingCommand) -> Needs:
    yield from _topic_unless_retry(_field(request, "topic"), Action.SUB)
    yield _group(_field(request, "consumerGroup"), Action.SUB)


def _query(request: RemotingCommand) -> Needs:
    yield _topic(_field(request, "topic"), Action.SUB, Action.GET)


def _heartbeat(request: RemotingCommand) -> Needs:
    for data in HeartbeatData.decode(request.body).consumer_data_set:
        yield _group(data.group_name, Action.SUB)
        for subscription in data.subscription_data_set:
            yield from _topic_unless_retry(subscription.topic, Action.SUB)


def _unregister(request: RemotingCommand) -> Needs:
    if group := request.ext_fields.get("consumerGroup"):
        yield _group(group, Action.SUB)


def _consumer_list(request: RemotingCommand) -> Needs:
    yield _group(_field(request, "consumerGroup"), Action.SUB, Action.GET)


def _offset(action: Action) -> Callable[[RemotingCommand], Needs]:
    def needs(request: RemotingCommand) -> Needs:
        yield from _topic_unless_retry(_field(request, "topic"), Action.SUB, action)
        yield _group(_field(request, "consumerGroup"), Action.SUB, action)

    return needs


def _lock(request: RemotingCommand) -> Needs:
    body = LockBatchRequest.decode(request.body)
    yield _group(body.consumer_group, Action.SUB)
    for topic in sorted({queue.topic for queue in body.mq_set}):
        yield from _topic_unless_retry(topic, Action.SUB)


_SPECIAL: Final[Mapping[int, Callable[[RemotingCommand], Needs]]] = {
    RequestCode.SEND_MESSAGE: _send("topic"),
    RequestCode.SEND_MESSAGE_V2: _send("b"),
    RequestCode.SEND_BATCH_MESSAGE: _send("b"),
    RequestCode.RECALL_MESSAGE: _recall,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.QUERY_MESSAGE: _query,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _consumer_list,
    RequestCode.QUERY_CONSUMER_OFFSET: _offset(Action.GET),
    RequestCode.UPDATE_CONSUMER_OFFSET: _offset(Action.UPDATE),
    RequestCode.LOCK_BATCH_MQ: _lock,
    RequestCode.UNLOCK_BATCH_MQ: _lock,
}

_ON_CLUSTER: Final[Mapping[int, Action]] = {
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Action.GET,
    RequestCode.VIEW_BROKER_STATS_DATA: Action.GET,
    RequestCode.GET_ALL_PRODUCER_INFO: Action.GET,
    317: Action.GET,  # GET_BROKER_CONSUME_STATS
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: Action.UPDATE,
    RequestCode.EXCHANGE_BROKER_HA_INFO: Action.UPDATE,
}

# The action, then the fields that name what it is done to, in the order of Java's header classes.
_BY_FIELDS: Final[Mapping[int, tuple[str, ...]]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: ("Create", "topic"),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: ("Get", "topic"),
    RequestCode.GET_MAX_OFFSET: ("Get", "topic"),
    RequestCode.GET_MIN_OFFSET: ("Get", "topic"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: ("Get", "topic"),
    RequestCode.VIEW_MESSAGE_BY_ID: ("Get", "topic"),
    RequestCode.GET_TOPIC_STATS_INFO: ("Get", "topic"),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ("Get", "consumerGroup"),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: ("Delete", "groupName"),
    RequestCode.GET_CONSUME_STATS: ("Get", "consumerGroup", "topic", "topicList"),
    RequestCode.DELETE_TOPIC_IN_BROKER: ("Delete", "topic"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ("Update", "group", "topic"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ("Get", "topic", "group"),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: ("Get", "topic"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: ("Get", "topic", "group"),
    RequestCode.GET_CONSUMER_RUNNING_INFO: ("Get", "consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ("Sub", "consumerGroup", "topic"),
    RequestCode.CLONE_GROUP_OFFSET: ("Update", "destGroup", "topic"),
    RequestCode.QUERY_CONSUME_QUEUE: ("Get", "topic", "consumerGroup"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ("Update", "topic"),
    343: ("Get", "group"),  # QUERY_TOPICS_BY_CONSUMER
    345: ("Get", "group", "topic"),  # QUERY_SUBSCRIPTION_BY_CONSUMER
    RequestCode.GET_TOPIC_CONFIG: ("Get", "topic"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: ("Get", "group"),
    353: ("Update", "group", "topic"),  # UPDATE_AND_GET_GROUP_FORBIDDEN
    RequestCode.POP_MESSAGE: ("Sub", "consumerGroup", "topic"),
    RequestCode.ACK_MESSAGE: ("Sub", "consumerGroup", "topic"),
    RequestCode.PEEK_MESSAGE: ("Sub", "topic", "consumerGroup"),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: ("Sub", "consumerGroup", "topic"),
    RequestCode.NOTIFICATION: ("Sub", "consumerGroup", "topic"),
    RequestCode.POLLING_INFO: ("Get", "consumerGroup", "topic"),
}
