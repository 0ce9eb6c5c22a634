"""The numbers of the remoting protocol: request codes, response codes and languages."""

from enum import IntEnum


class RequestCode(IntEnum):
    """What a command asks for. B: of a broker, N: of a NameServer, C: by a broker of a client."""

    SEND_MESSAGE = 10  # B
    PULL_MESSAGE = 11  # B
    QUERY_MESSAGE = 12  # B
    QUERY_CONSUMER_OFFSET = 14  # B
    UPDATE_CONSUMER_OFFSET = 15  # B
    UPDATE_AND_CREATE_TOPIC = 17  # B
    UPDATE_AND_CREATE_TOPIC_LIST = 18  # B
    GET_ALL_TOPIC_CONFIG = 21  # B
    UPDATE_BROKER_CONFIG = 25  # B
    GET_BROKER_CONFIG = 26  # B
    GET_BROKER_RUNTIME_INFO = 28  # B
    SEARCH_OFFSET_BY_TIMESTAMP = 29  # B
    GET_MAX_OFFSET = 30  # B
    GET_MIN_OFFSET = 31  # B
    GET_EARLIEST_MSG_STORETIME = 32  # B
    VIEW_MESSAGE_BY_ID = 33  # B
    HEART_BEAT = 34  # B
    UNREGISTER_CLIENT = 35  # B
    CONSUMER_SEND_MSG_BACK = 36  # B
    END_TRANSACTION = 37  # B
    GET_CONSUMER_LIST_BY_GROUP = 38  # B
    CHECK_TRANSACTION_STATE = 39  # C
    NOTIFY_CONSUMER_IDS_CHANGED = 40  # C
    LOCK_BATCH_MQ = 41  # B
    UNLOCK_BATCH_MQ = 42  # B
    GET_ALL_CONSUMER_OFFSET = 43  # B, from its slaves
    GET_ALL_DELAY_OFFSET = 45  # B, from its slaves
    CHECK_CLIENT_CONFIG = 46  # B
    PUT_KV_CONFIG = 100  # N
    GET_KV_CONFIG = 101  # N
    DELETE_KV_CONFIG = 102  # N
    REGISTER_BROKER = 103  # N
    UNREGISTER_BROKER = 104  # N
    GET_ROUTEINFO_BY_TOPIC = 105  # N
    GET_BROKER_CLUSTER_INFO = 106  # N
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200  # B
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201  # B
    GET_TOPIC_STATS_INFO = 202  # B
    GET_CONSUMER_CONNECTION_LIST = 203  # B
    GET_PRODUCER_CONNECTION_LIST = 204  # B
    WIPE_WRITE_PERM_OF_BROKER = 205  # N
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206  # N
    DELETE_SUBSCRIPTIONGROUP = 207  # B
    GET_CONSUME_STATS = 208  # B
    DELETE_TOPIC_IN_BROKER = 215  # B
    DELETE_TOPIC_IN_NAMESRV = 216  # N
    REGISTER_TOPIC_IN_NAMESRV = 217  # N
    GET_KVLIST_BY_NAMESPACE = 219  # N
    RESET_CONSUMER_CLIENT_OFFSET = 220  # C
    GET_CONSUMER_STATUS_FROM_CLIENT = 221  # C
    INVOKE_BROKER_TO_RESET_OFFSET = 222  # B
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223  # B
    GET_TOPICS_BY_CLUSTER = 224  # N
    QUERY_TOPIC_CONSUME_BY_WHO = 300  # B
    QUERY_CONSUME_TIME_SPAN = 303  # B
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304  # N
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305  # B
    GET_CONSUMER_RUNNING_INFO = 307  # B, which asks the client
    CONSUME_MESSAGE_DIRECTLY = 309  # B, which asks the client
    SEND_MESSAGE_V2 = 310  # B
    CLONE_GROUP_OFFSET = 314  # B
    VIEW_BROKER_STATS_DATA = 315  # B
    UPDATE_NAMESRV_CONFIG = 318  # N
    GET_NAMESRV_CONFIG = 319  # N
    SEND_BATCH_MESSAGE = 320  # B
    QUERY_CONSUME_QUEUE = 321  # B
    QUERY_DATA_VERSION = 322  # N
    RESUME_CHECK_HALF_MESSAGE = 323  # B
    SEND_REPLY_MESSAGE = 324  # B
    SEND_REPLY_MESSAGE_V2 = 325  # B
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326  # C
    ADD_WRITE_PERM_OF_BROKER = 327  # N
    GET_ALL_PRODUCER_INFO = 328  # B
    GET_TOPIC_CONFIG = 351  # B, 5.x
    GET_SUBSCRIPTIONGROUP_CONFIG = 352  # B, 5.x
    LITE_PULL_MESSAGE = 361  # B, 5.x
    RECALL_MESSAGE = 370  # B, 5.3.2
    QUERY_ASSIGNMENT = 400  # B, 5.x
    SET_MESSAGE_REQUEST_MODE = 401  # B, 5.x
    GET_BROKER_MEMBER_GROUP = 901  # N, 5.x
    BROKER_HEARTBEAT = 904  # N, 5.x
    NOTIFY_MIN_BROKER_ID_CHANGE = 905  # B, 5.x
    EXCHANGE_BROKER_HA_INFO = 906  # B, 5.x
    GET_BROKER_HA_STATUS = 907  # B, 5.x
    # From here on the codes do not fit the 16 bits of the binary header: they travel as JSON.
    POP_MESSAGE = 200050  # B, 5.x
    ACK_MESSAGE = 200051  # B, 5.x
    PEEK_MESSAGE = 200052  # B, 5.x
    CHANGE_MESSAGE_INVISIBLETIME = 200053  # B, 5.x
    NOTIFICATION = 200054  # B, 5.x
    POLLING_INFO = 200055  # B, 5.x
    BATCH_ACK_MESSAGE = 200151  # B, 5.x


class ResponseCode(IntEnum):
    """How a command was answered."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    TRANSACTION_SHOULD_COMMIT = 200
    TRANSACTION_SHOULD_ROLLBACK = 201
    TRANSACTION_STATE_UNKNOW = 202  # RocketMQ's spelling
    TRANSACTION_STATE_GROUP_WRONG = 203
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    BROKER_NOT_EXIST = 211
    BROKER_DISPATCH_NOT_COMPLETE = 212
    BROADCAST_CONSUMPTION = 213
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500
    LMQ_QUOTA_EXCEEDED = 2017
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 2018
    USER_NOT_EXIST = 3001
    POLICY_NOT_EXIST = 3002


class LanguageCode(IntEnum):
    """The language a peer is written in, as both header serializations name it."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


# The release whose behaviour we speak: 5.5.0. From 401 on a NameServer answers routes in standard
# JSON; above 475 a broker that shuts down says GO_AWAY instead of just closing.
PROTOCOL_VERSION = 513


def response_name(code: int) -> str:
    """RocketMQ's name of a response code, or its number where it has none."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return f"code {code}"


def request_name(code: int) -> str:
    """RocketMQ's name of a request code, or its number where it has none."""
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request code {code}"
