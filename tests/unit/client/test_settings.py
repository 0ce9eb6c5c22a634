"""Settings: their defaults, what they refuse, and that they are written down."""

import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest

import rocketpipe
from rocketpipe.client.producer import AsyncProducer
from rocketpipe.client.queue_choice import POLICIES, RoundRobinSettings, policy_settings
from rocketpipe.client.settings import ClientSettings, ProducerSettings
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.wire.compression import Compression
from rocketpipe.wire.signature import Credentials

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"


def settings(**changes: Any) -> ProducerSettings:
    return ProducerSettings("group", **{"namesrv": "n:9876", **changes})


def test_the_defaults_are_rocketmqs() -> None:
    defaults = settings()
    assert defaults.create_topic_key == "TBW102"
    assert defaults.default_topic_queue_nums == 4
    assert defaults.send_timeout == 3.0
    assert defaults.retry_times == 2
    assert defaults.retry_another_broker_when_not_store_ok is False
    assert defaults.compress_body_bytes_min == 4096
    assert defaults.body_compression is Compression.ZLIB
    assert defaults.message_bytes_max == 4 * 1024 * 1024
    assert defaults.vip_channel is False
    assert defaults.poll_name_server_interval == defaults.heartbeat_broker_interval == 30.0
    assert defaults.request_timeout == 3.0
    assert defaults.attempt_timeout == "fair"  # ours


# NameServers.


@pytest.mark.parametrize(
    "namesrv",
    [
        "a:9876;b:9877",
        "a:9876,b:9877",
        " a:9876 ; b:9877 ;",
        ["a:9876", "b:9877"],
        ("a:9876", " b:9877 "),
        "a:9876;b:9877;a:9876",
    ],
)
def test_name_servers_come_as_text_or_as_a_list(namesrv: Any) -> None:
    assert settings(namesrv=namesrv).name_servers == (Address("a", 9876), Address("b", 9877))


def test_without_name_servers_those_of_the_environment_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:9876;b:9877")
    taken = ProducerSettings("group")
    assert taken.name_servers == (Address("a", 9876), Address("b", 9877))
    assert settings().name_servers == (Address("n", 9876),)  # what is given comes first
    monkeypatch.delenv("NAMESRV_ADDR")
    assert replace(taken, retry_times=1).name_servers == taken.name_servers  # and they are kept
    with pytest.raises(InvalidSetting, match="give namesrv, or set NAMESRV_ADDR"):
        ProducerSettings("group")


@pytest.mark.parametrize("namesrv", ["", " ; ", [], ["a"], "a:b", "a:99999", "::1:9876"])
def test_a_name_server_that_can_be_none_is_refused(namesrv: Any) -> None:
    with pytest.raises(InvalidSetting):
        settings(namesrv=namesrv)


# What is refused.


@pytest.mark.parametrize("group", ["", " ", "a b", "grüppe", "a.b", "a" * 256, None, 7])
def test_a_group_that_brokers_would_refuse_is_refused(group: Any) -> None:
    with pytest.raises(InvalidSetting, match="producer_group"):
        ProducerSettings(group, namesrv="n:9876")


def test_a_group_may_have_every_letter_rocketmq_allows() -> None:
    group = "%|aZ09_-" + "x" * 247
    assert ProducerSettings(group, namesrv="n:9876").producer_group == group


def test_the_name_of_javas_default_group_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="a name of your own"):
        ProducerSettings("DEFAULT_PRODUCER", namesrv="n:9876")


SECONDS = (
    "request_timeout",
    "poll_name_server_interval",
    "heartbeat_broker_interval",
    "silent_connection_timeout",
    "send_timeout",
    "busy_pause",
    "attempt_timeout",
)
COUNTS = (
    "default_topic_queue_nums",
    "message_bytes_max",
    "batch_messages_max",
    "batch_bytes_max",
    "batches_in_flight_max",
    "listener_threads_max",
    "transaction_checks_max",
)
COUNTS_FROM_NONE = ("retry_times", "compress_body_bytes_min", "transaction_checks_waiting_max")


@pytest.mark.parametrize("name", SECONDS)
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "3", True])
def test_a_duration_must_be_a_number_of_seconds(name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} is"):
        settings(**{name: value})


@pytest.mark.parametrize("name", [*COUNTS, *COUNTS_FROM_NONE])
@pytest.mark.parametrize("value", [-1, 1.5, "3", True, None])
def test_a_count_must_be_a_whole_number(name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} is"):
        settings(**{name: value})


@pytest.mark.parametrize("name", COUNTS)
def test_some_counts_may_not_be_0(name: str) -> None:
    with pytest.raises(InvalidSetting, match="from 1"):
        settings(**{name: 0})


@pytest.mark.parametrize("name", COUNTS_FROM_NONE)
def test_others_may(name: str) -> None:
    assert getattr(settings(**{name: 0}), name) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("instance_name", ""),
        ("instance_name", "a\nb"),
        ("instance_name", None),
        ("instance_name", 7),
        ("unit_name", ""),
        ("unit_name", 7),
        ("namespace", ""),
        ("namespace", "a b"),
        ("attempt_timeout", "unfair"),
        ("policy", "random"),
        ("policy", RoundRobinSettings),
        ("compression", "gzip"),
        ("create_topic_key", ""),
        ("create_topic_key", "a b"),
        ("trace_topic", None),
        ("namesrv", 9876),
        ("namesrv", [9876]),
        ("credentials", ("access", "secret")),
        ("tls", True),
        ("remoting", None),
        ("trace", "false"),
        ("vip_channel", 1),
        ("retry_another_broker_when_not_store_ok", "no"),
    ],
)
def test_what_can_not_be_used_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting, match=name):
        settings(**{name: value})


@pytest.mark.parametrize("value", [None, "fair", 1, 0.5])
def test_the_time_of_an_attempt_comes_in_three_ways(value: Any) -> None:
    assert settings(attempt_timeout=value).attempt_timeout == value


@pytest.mark.parametrize("compression", ["zlib", Compression.ZLIB])
def test_a_compression_goes_by_name_as_well(compression: Any) -> None:
    assert settings(compression=compression).body_compression is Compression.ZLIB


# As one object, or by name.


def test_a_producer_takes_settings_by_name_or_as_an_object() -> None:
    by_name = AsyncProducer("group", namesrv="n:9876", retry_times=5)
    as_object = AsyncProducer(settings(retry_times=5))
    changed = AsyncProducer(settings(), retry_times=5)
    assert by_name.settings == as_object.settings == changed.settings


@pytest.mark.parametrize("first", ["group", ProducerSettings("group", namesrv="n:9876")])
def test_a_setting_that_does_not_exist_is_refused_by_name(first: Any) -> None:
    with pytest.raises(InvalidSetting, match="no setting retries, sendTimeout"):
        AsyncProducer(first, sendTimeout=3, retries=2)


def test_the_part_about_the_client_can_be_shared() -> None:
    first = settings(
        instance_name="i",
        unit_name="u",
        credentials=Credentials("a", "b"),
        tls=TlsSettings(verify=False),
        remoting=RemotingSettings(requests_in_flight_max=7),
        request_timeout=1.0,
        retry_times=7,
    )
    second = replace(first, retry_times=1, producer_group="other")
    shared = first.client_settings()
    assert type(shared) is ClientSettings
    assert shared == second.client_settings()
    assert hash(shared) == hash(second.client_settings())
    for each in fields(ClientSettings):
        assert getattr(shared, each.name) == getattr(first, each.name)
    assert shared != replace(first, request_timeout=2.0).client_settings()


def test_settings_can_be_pickled_and_keep_secrets_to_themselves() -> None:
    with_secret = settings(credentials=Credentials("who", "sesame"))
    assert pickle.loads(pickle.dumps(with_secret)) == with_secret
    assert "sesame" not in repr(with_secret)
    with pytest.raises(InvalidSetting) as refused:
        settings(credentials=("who", "sesame"))
    assert "sesame" not in str(refused.value)


def test_every_setting_is_documented_with_its_default() -> None:
    rows = {
        cells[0].strip(" `"): cells[1].strip(" `")
        for line in DOCS.read_text().partition("## The policies")[0].splitlines()
        if line.startswith("| `")
        for cells in [line.strip("|").split("|", 2)]
    }
    defaults = settings()
    names = {each.name for each in fields(ProducerSettings)}
    assert rows.keys() == names, (
        f"docs/settings.md and ProducerSettings differ: {rows.keys() ^ names}"
    )
    for name, told in rows.items():
        if name not in {"producer_group", "namesrv", "remoting"}:
            assert told == str(getattr(defaults, name)), name


@pytest.mark.parametrize("policy", POLICIES)
def test_every_setting_of_a_policy_is_documented_with_its_default(policy: str) -> None:
    default = policy_settings(policy)
    names = [each.name for each in fields(cast(Any, default))]
    told = [n if n == "latency_table" else f"{n}={getattr(default, n)}" for n in names]
    row = f"| `{policy}` | `{type(default).__name__}({', '.join(told)})`"
    docs = DOCS.read_text()
    assert row in docs
    assert all(f"`{name}`" in docs for name in names)


def test_the_names_a_user_needs_are_at_the_top() -> None:
    for name in rocketpipe.__all__:
        assert getattr(rocketpipe, name) is not None
