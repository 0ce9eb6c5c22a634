"""Settings are checked, shown by Apache's names, and changed by them."""

from pathlib import Path

import pytest

from rocketpipe.errors import InvalidSetting
from rocketpipe.nameserver.settings import NameServerSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scan_not_active_broker_interval", 0),
        ("scan_not_active_broker_interval", float("nan")),
        ("wait_seconds_for_service", -1.0),
        ("wait_seconds_for_service", "45"),
        ("brokers_max", 0),
        ("topics_max", 1.5),
        ("kv_config_bytes_max", True),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidSetting, match=name):
        NameServerSettings(**{name: value})  # type: ignore[arg-type]


def test_they_are_shown_by_apaches_names_and_read_again() -> None:
    settings = NameServerSettings(
        order_message_enable=True,
        scan_not_active_broker_interval=2.5,
        wait_seconds_for_service=7,
        topics_max=5,
        config_black_list="topicsMax",
        kv_config_path=Path("/some/kvConfig.json"),
    )
    config = settings.to_config()
    assert list(config) == sorted(config)
    assert config["orderMessageEnable"] == "true"
    assert config["scanNotActiveBrokerInterval"] == "2500"
    assert config["waitSecondsForService"] == "7"
    assert config["kvConfigPath"] == "/some/kvConfig.json"
    del config["kvConfigPath"]
    again = NameServerSettings(kv_config_path=settings.kv_config_path).updated(config)
    assert again == settings
    assert "kvConfigPath" not in NameServerSettings().to_config()


def test_names_we_do_not_know_change_nothing() -> None:
    assert NameServerSettings().updated({"clusterTest": "true"}) == NameServerSettings()


def test_blanks_around_a_value_mean_nothing() -> None:
    settings = NameServerSettings().updated({"topicsMax": "7 ", "orderMessageEnable": "true\t"})
    assert settings == NameServerSettings(topics_max=7, order_message_enable=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [("waitSecondsForService", "soon"), ("topicsMax", "0"), ("brokersMax", "99999999999")],
)
def test_values_we_can_not_use_are_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"(?i)" + name.replace("Max", "_?max")[:10]):
        NameServerSettings().updated({name: text})


def test_some_may_not_be_changed_from_outside() -> None:
    settings = NameServerSettings(config_black_list="topicsMax;brokersMax")
    for name in ("topicsMax", "brokersMax", "configBlackList", "kvConfigPath", "rocketmqHome"):
        assert settings.is_black_listed(name)
    assert not settings.is_black_listed("orderMessageEnable")
    assert not NameServerSettings().is_black_listed("topicsMax")
