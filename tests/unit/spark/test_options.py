"""Options: read in any case, refused by name, and secrets kept."""

import pickle
from collections.abc import Mapping

import pytest

from rocketpipe.client.consumer.settings import PullConsumerSettings
from rocketpipe.client.consumer.subscriptions import Sql92
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.spark.options import ConnectionOptions, OptionParser
from rocketpipe.spark.positions import Position, Positions
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.spark.reader import _gather
from rocketpipe.wire.signature import Credentials

GIVEN = {"namesrv": "127.0.0.1:9876", "topic": "orders"}


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({**GIVEN, **options})


def test_options_are_read_in_any_case() -> None:
    options = ReadOptions.parse({"NAMESRV": "h:1", "TopicPattern": "a.*", "pullbatchsize": "7"})
    assert (options.connection.namesrv, options.topic_pattern) == ("h:1", "a.*")
    assert options.pull_batch_size == 7


def test_defaults() -> None:
    options = parse()
    assert options.topics == ("orders",)
    assert (options.starting, options.ending, options.group) == (None, None, None)
    assert options.fail_on_data_loss
    assert options.include_properties
    assert options.expression == "*"
    assert options.for_batch() is options.for_stream() is options


@pytest.mark.parametrize(
    ("option", "value", "setting", "meaning"),
    [
        ("pullBatchSize", "77", "pull_batch_size", 77),
        ("pullsInFlight", "3", "pulls_in_flight_max", 3),
        ("pullTimeout", "7s", "pull_timeout", 7.0),
        ("requestTimeout", "9s", "request_timeout", 9.0),
        ("group", "readers", "consumer_group", "readers"),
        ("namespace", "shop", "namespace", "shop"),
        ("failOnDataLoss", "false", "skip_gaps", True),
    ],
)
def test_what_tasks_pull_with(option: str, value: str, setting: str, meaning: object) -> None:
    assert parse().consumer_settings()[setting] != meaning
    settings = parse(**{option: value}).consumer_settings()
    assert settings[setting] == meaning
    made = PullConsumerSettings(**settings)
    assert getattr(made, setting) == meaning


def test_how_tls_is_spoken() -> None:
    assert parse().connection.tls is None
    given = {"tlsCaFile": "ca", "tlsCertFile": "cert", "tlsKeyFile": "key", "tlsKeyPassword": "pw"}
    tls = parse(**given, tlsServerName="mq.example").connection.tls
    assert tls == TlsSettings(
        ca_file="ca",
        cert_file="cert",
        key_file="key",
        key_password="pw",
        server_hostname="mq.example",
    )
    assert parse(tlsVerify="false").connection.tls == TlsSettings(verify=False)
    assert parse(tls="true").connection.tls == TlsSettings()
    token = parse(accessKey="a", secretKey="b", securityToken="c").connection.credentials
    assert token == Credentials("a", "b", "c")


def test_an_arrow_batch_has_so_many_bytes() -> None:
    gathered = list(_gather([b"x" * 40] * 5, parse(batchBytes="100").batch_bytes))
    assert [len(each) for each in gathered] == [3, 2]


def test_several_topics() -> None:
    assert parse(topic=" a, b ,a,").topics == ("a", "b")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topci": "x"}, "there is no option topci: did you mean topic?"),
        ({"unheardOf": "x"}, "there is no option unheardOf"),
        ({"topicPattern": "x"}, "options topic and topicPattern contradict"),
        ({"assign": '{"t":{"b":[0]}}'}, "options topic and assign contradict"),
        ({"topic": ","}, "option topic names no topic"),
        ({"topic": "a b"}, "option topic: topic 'a b'"),
        ({"topic": ""}, "option topic is empty"),
        ({"namesrv": "nonsense:x"}, "option namesrv: "),
        ({"startingOffsets": "first"}, "option startingOffsets is 'first': it must be earliest"),
        ({"startingOffsets": '{"t":3}'}, "option startingOffsets: 3 must be JSON such as"),
        ({"startingOffsets": '{"t":{"b":{"x":3}}}'}, "'x' is no queue's number"),
        ({"startingOffsets": '{"t":{"b":{"0":-3}}}'}, "-3 must be an offset, -2 for earliest"),
        ({"startingOffsets": '{"t":{"b":{"0":1,"0":2}}}'}, "a name stands there twice"),
        ({"startingOffsets": "{"}, "option startingOffsets is '{': it must be a JSON object"),
        ({"startingOffsets": "group"}, "option startingOffsets is group, but option group is not"),
        ({"endingOffsets": "group"}, "option endingOffsets is group, but option group is not"),
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "contradict"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp is 'yesterday'"),
        ({"startingOffsetsByTimestamp": '{"t":{"b":{"0":-1}}}'}, "-1 must be a time in ms"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "it must be one of error, latest"),
        ({"tags": "a", "sql": "b = 1"}, "options tags and sql contradict"),
        ({"group": "a b"}, "option group is 'a b'"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is '0': it must be a whole"),
        ({"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "more than maxOffsets"),
        ({"maxTriggerDelay": "5"}, "option maxTriggerDelay is '5': it must be a time with its"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss is 'maybe': it must be true or"),
        ({"accessKey": "me"}, "option secretKey is missing"),
        ({"secretKey": "hush"}, "option accessKey is missing"),
        ({"tlsKeyFile": "k"}, "option tls: key_file is of no use without cert_file"),
        ({"tls": "false", "tlsCaFile": "f"}, "options tls=false and tlsCaFile contradict"),
        ({"batchBytes": "2000000000"}, "option batchBytes is '2000000000': it must be a whole"),
        ({"retries": "-1"}, "option retries is '-1'"),
    ],
)
def test_what_is_wrong_is_refused_by_name(options: Mapping[str, str], complaint: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        ReadOptions.parse({**GIVEN, **options})
    assert complaint in str(caught.value)


def test_something_to_read_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSetting, match="give one of the options topic, topicPattern and ass"):
        ReadOptions.parse({"namesrv": "h:1"})
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(InvalidSetting, match="option namesrv: no NameServer"):
        ReadOptions.parse({"topic": "t"})
    monkeypatch.setenv("NAMESRV_ADDR", "h:2")
    assert ReadOptions.parse({"topic": "t"}).connection.namesrv == "h:2"


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, "{}")
    with pytest.raises(InvalidSetting, match=f"option {name} is for a batch query"):
        parse(**{name: value}).for_stream()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for a streaming query"),
        ({"maxTriggerDelay": "5s"}, "option maxTriggerDelay is for a streaming query"),
        ({"minOffsetsPerTrigger": "5"}, "option minOffsetsPerTrigger is for a streaming query"),
        ({"offsetsInterval": "5s"}, "option offsetsInterval is for a streaming query"),
        ({"discoveryInterval": "5s"}, "option discoveryInterval is for a streaming query"),
        ({"startingOffsets": "latest"}, "startingOffsets is latest: a batch query would read no"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest: a batch query would read no"),
    ],
)
def test_what_makes_no_sense_in_a_batch(options: Mapping[str, str], complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        parse(**options).for_batch()


def test_positions() -> None:
    queue = MessageQueue("t", "b", 0)
    assert parse(startingOffsets="EARLIEST").starting == Positions(Position("earliest"))
    assert parse(endingTimestamp="77").ending == Positions(Position("time", 77))
    some = parse(startingOffsets='{"t":{"b":{"0":23,"1":-1,"2":-2}}}').starting
    assert some is not None
    assert some.of(queue) == Position("offset", 23)
    assert some.of(MessageQueue("t", "b", 1)) == Position("latest")
    assert some.of(MessageQueue("t", "b", 2)) == Position("earliest")
    assert some.of(MessageQueue("t", "b", 3)) == Position("earliest")  # not named
    times = parse(endingOffsetsByTimestamp='{"t":{"b":{"0":5}}}').ending
    assert times is not None
    assert times.of(queue) == Position("time", 5)
    assert times.of(MessageQueue("t", "b", 1)) == Position("latest")


def test_queues_can_be_assigned() -> None:
    options = ReadOptions.parse({"namesrv": "h:1", "assign": '{"t":{"b":[1,0],"a":[2]}}'})
    assert options.assigned == (
        *(MessageQueue("t", "a", 2), MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)),
    )
    for wrong in ("{}", '{"t":{"b":[]}}', '{"t":{"b":[0,0]}}', '{"t":{"b":["0"]}}', '{"t":[]}'):
        with pytest.raises(InvalidSetting, match="option assign"):
            ReadOptions.parse({"namesrv": "h:1", "assign": wrong})


def test_filters() -> None:
    assert parse(tags="a || b").expression == "a || b"
    assert parse(tags="a || b").tags_wanted == {"a", "b"}
    assert parse(sql="x > 1").expression == Sql92("x > 1")
    assert parse(sql="x > 1").tags_wanted == set()


def test_times_have_units() -> None:
    for text, seconds in {"250ms": 0.25, "5s": 5, "15m": 900, "1.5 h": 5400, "2d": 172800}.items():
        assert parse(maxTriggerDelay=text).trigger_delay_max == seconds


def test_secrets_are_never_shown() -> None:
    options = parse(
        accessKey="me", secretKey="hush", securityToken="tok", tlsCertFile="c", tlsKeyPassword="pw!"
    )
    assert "hush" not in repr(options)
    assert "tok" not in repr(options).replace("security_token", "")
    assert "pw!" not in repr(options)
    with pytest.raises(InvalidSetting) as caught:
        parse(accessKey="me", secretKey="hush", topicPattern="x")
    assert "hush" not in str(caught.value)


def test_options_travel_to_tasks() -> None:
    options = parse(accessKey="me", secretKey="hush", tlsCaFile="ca", startingOffsets="earliest")
    assert pickle.loads(pickle.dumps(options)) == options
    settings = options.consumer_settings()
    assert settings["credentials"].secret_key == "hush"
    assert settings["tls"].ca_file == "ca"


def test_both_sides_share_the_options_of_the_connection() -> None:
    parser = OptionParser({"namesrv": "h:1", "namespace": "shop", "requestTimeout": "7s"})
    connection = ConnectionOptions.parse(parser)
    parser.finish()
    assert (connection.namespace, connection.client_settings()["request_timeout"]) == ("shop", 7)
