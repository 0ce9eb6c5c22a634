"""Errors: they keep their facts through pickling and copying, and say a sentence."""

import copy
import pickle

import pytest

from rocketpipe.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    MQError,
    NoNameServer,
    NoRoute,
    RemotingError,
    RequestTimeout,
    SendFailed,
    TooManyRequests,
)
from rocketpipe.message import Attempt, MessageQueue, SendResult, SendStatus

QUEUE = MessageQueue("orders", "broker-a", 1)
REFUSED = BrokerError(1, "no", "a:10911")
ATTEMPT = Attempt(
    QUEUE, "a:10911", 1, 0.5, None, REFUSED, "in turn", (("broker-b", "failed for this send"),)
)

ERRORS = [
    NoRoute("orders", ("n:9876",), "the topic does not exist"),
    NoNameServer("the route", (("n:9876", RequestTimeout("n:9876", "GET", 3.0)),)),
    ConnectFailed("a:10911", "refused"),
    ConnectionLost("a:10911", "reset"),
    RequestTimeout("a:10911", "SEND_MESSAGE_V2", 1.5),
    TooManyRequests("a:10911", "SEND_MESSAGE_V2", "too many bytes"),
    REFUSED,
    SendFailed("orders", "which is as many as allowed", [ATTEMPT]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_and_copying(error: MQError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        # Errors are equal only to themselves, also those inside of others.
        assert repr(vars(again)) == repr(vars(error))


def test_a_result_survives_pickling() -> None:
    result = SendResult(
        SendStatus.FLUSH_DISK_TIMEOUT, "A,B", "1,2", QUEUE, 7, "t", "h", "r", False, ()
    )
    assert pickle.loads(pickle.dumps(result)) == result
    assert result.message_ids == ("A", "B")


def test_a_failed_send_tells_every_attempt() -> None:
    failed = SendFailed("orders", "which is as many as allowed", [ATTEMPT])
    assert failed.attempts == (ATTEMPT,)
    assert failed.code == 1
    assert str(failed) == (
        "send to topic 'orders' failed after 1 attempt, which is as many as allowed. "
        "(1) broker-a queue 1 (in turn), 500 ms: a:10911 answered SYSTEM_ERROR: no "
        "[passed over: broker-b failed for this send]."
    )
    none_made = SendFailed("orders", "and no time was left for another", [])
    assert none_made.code is None
    assert str(none_made).endswith("failed after 0 attempts, and no time was left for another.")


def test_no_route_and_no_name_server_name_the_topic_and_the_addresses() -> None:
    no_route, no_name_server = ERRORS[:2]
    assert str(no_route) == (
        "no route to topic 'orders': the topic does not exist (asked NameServer n:9876)"
    )
    assert str(no_name_server) == (
        "no NameServer answered when asked for the route: GET to n:9876: no answer within 3 s"
    )
    assert isinstance(no_route, ClientError)
    assert isinstance(no_name_server, RemotingError)


def test_an_attempt_says_how_it_ended() -> None:
    stored = ATTEMPT._replace(status=SendStatus.SEND_OK, error=None, passed_over=())
    assert str(stored) == "broker-a queue 1 (in turn), 500 ms: SEND_OK"
    assert str(stored._replace(status=None)).endswith("500 ms: handed over")
