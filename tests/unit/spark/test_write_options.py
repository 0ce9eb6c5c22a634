"""The sink's options: what they become, and what a wrong one says."""

import pickle
import re
from typing import Any

import pytest

from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import SendStatus
from rocketpipe.spark.write_options import WriteOptions


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse(_named(options), is_stream=False)


def parse_of_stream(**options: str) -> WriteOptions:
    return WriteOptions.parse(_named(options), is_stream=True)


def _named(options: dict[str, str]) -> dict[str, str]:
    named = {name.replace("producer_", "producer."): value for name, value in options.items()}
    return {"namesrv": "127.0.0.1:9876", **named}


def test_what_is_not_given_is_as_the_producer_has_it_but_more_patient() -> None:
    options = parse()
    assert (options.topic, options.job_id) == (None, None)
    assert options.accepted_statuses == {SendStatus.SEND_OK}
    assert options.producer == ProducerSettings(
        "rocketpipe-spark",
        namesrv="127.0.0.1:9876",
        request_timeout=5.0,
        send_timeout=30.0,
        batch_messages_max=1024,
    )


def test_each_option_has_its_setting_in_any_case() -> None:
    options = parse(
        TOPIC="orders",
        jobid="nightly",
        acceptedStatuses="SEND_OK, flush_disk_timeout",
        namespace="ns",
        accessKey="me",
        secretKey="secret",
        producer_GROUP="writers",
        producer_policy="peak-ewma",
        producer_sendTimeout="500ms",
        producer_attemptTimeout="none",
        producer_retryTimes="0",
        producer_retryAnotherBrokerWhenNotStoreOk="true",
        producer_busyPause="1s",
        producer_batchMessagesMax="10",
        producer_batchBytesMax="1000",
        producer_batchesInFlightMax="2",
        producer_messageBytesMax="2000",
        producer_compressBodyBytesMin="100",
        producer_compression="lz4",
        producer_vipChannel="true",
        producer_createTopicKey="MINE",
        producer_defaultTopicQueueNums="7",
        producer_trace="true",
        producer_traceTopic="traces",
        producer_unitName="unit",
        producer_instanceName="me",
    )
    assert (options.topic, options.job_id) == ("orders", "nightly")
    assert options.accepted_statuses == {SendStatus.SEND_OK, SendStatus.FLUSH_DISK_TIMEOUT}
    expected: dict[str, Any] = {
        "producer_group": "writers",
        "namespace": "ns",
        "policy": "peak-ewma",
        "send_timeout": 0.5,
        "attempt_timeout": None,
        "retry_times": 0,
        "retry_another_broker_when_not_store_ok": True,
        "busy_pause": 1.0,
        "batch_messages_max": 10,
        "batch_bytes_max": 1000,
        "batches_in_flight_max": 2,
        "message_bytes_max": 2000,
        "compress_body_bytes_min": 100,
        "compression": "lz4",
        "vip_channel": True,
        "create_topic_key": "MINE",
        "default_topic_queue_nums": 7,
        "trace": True,
        "trace_topic": "traces",
        "unit_name": "unit",
        "instance_name": "me",
    }
    assert {name: getattr(options.producer, name) for name in expected} == expected
    assert options.producer.credentials is not None


def test_it_travels_to_tasks_and_tells_no_secret() -> None:
    options = parse(accessKey="me", secretKey="hidden-thing", topic="orders")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "hidden-thing" not in repr(options)


def test_a_time_for_each_attempt_has_a_unit() -> None:
    assert parse(producer_attemptTimeout="2s").producer.attempt_timeout == 2.0


def test_a_streams_checkpoint_is_sparks_own() -> None:
    assert parse_of_stream(checkpointLocation="/somewhere").topic is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": "a b"}, "option topic: topic 'a b': it takes letters"),
        ({"topic": " "}, "option topic is empty"),
        ({"acceptedStatuses": "OK"}, "acceptedStatuses is 'OK': it must be some of SEND_OK"),
        ({"producer_policy": "best"}, "producer.policy is 'best': it must be one of round-robin"),
        ({"producer_retryTimes": "-1"}, "producer.retryTimes is '-1': it must be a whole number"),
        ({"producer_sendTimeout": "5"}, "producer.sendTimeout is '5': it must be a time with"),
        ({"producer_attemptTimeout": "long"}, "producer.attemptTimeout is 'long'"),
        ({"producer_group": "a b"}, "option producer.group"),
        ({"producer_colour": "red"}, "there is no option producer.colour"),
        ({"tpoic": "orders"}, "there is no option tpoic: did you mean topic?"),
        ({"startingOffsets": "latest"}, "there is no option startingOffsets"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(reason)):
        parse(**options)


def test_a_stream_has_an_id_already() -> None:
    with pytest.raises(InvalidSetting, match="jobId is for batch writes"):
        parse_of_stream(jobId="mine")
