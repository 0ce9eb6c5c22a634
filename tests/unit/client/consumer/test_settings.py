"""The settings of consumers: what is refused, and that each is documented."""

import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.client.consumer.pull_consumer import AsyncPullConsumer
from rocketpipe.client.consumer.settings import (
    ConsumerSettings,
    PullConsumerSettings,
    PushConsumerSettings,
)
from rocketpipe.client.settings import ClientSettings
from rocketpipe.errors import InvalidSetting
from rocketpipe.wire.bodies.heartbeat import ConsumeFromWhere

DOCS = Path(__file__).parents[4] / "docs" / "settings.md"


def test_the_defaults_are_rocketmqs() -> None:
    defaults = PushConsumerSettings("group", namesrv="n:9876")
    assert defaults.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert (defaults.pull_batch_size, defaults.consume_batch_size) == (32, 1)
    assert (defaults.queue_messages_max, defaults.queue_span_max) == (1000, 2000)
    assert defaults.queue_bytes_max == 100 * 1024 * 1024
    assert (defaults.rebalance_interval, defaults.persist_offset_interval) == (20.0, 5.0)
    assert (defaults.suspend_timeout, defaults.pull_timeout) == (15.0, 30.0)
    assert (defaults.workers, defaults.consume_timeout) == (20, 15 * 60)


@pytest.mark.parametrize(
    "wrong",
    [
        {"consumer_group": "a b"},
        {"consumer_group": "DEFAULT_CONSUMER"},
        {"namespace": ""},
        {"consume_from": "middle"},
        {"consume_from": -1},
        {"consume_from": True},
        {"allocation": "fairly"},
        {"rebalance_interval": 0},
        {"pull_timeout": 10.0},
        {"pull_batch_size": 0},
        {"messages_max": 1.5},
        {"bytes_max": 0},
        {"auto_commit": "yes"},
        {"skip_gaps": 1},
        {"pulls_in_flight_max": 0},
    ],
    ids=str,
)
def test_what_can_not_be_used_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"consumer_group": "group", "namesrv": "n:9876", **wrong}
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        PullConsumerSettings(**settings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"message_model": "both"},
        {"orderly": 1},
        {"workers": 0},
        {"consume_batch_size": 0},
        {"queue_span_max": 0},
        {"max_reconsume_times": -1},
        {"suspend_queue_time": 0},
        {"consume_timeout": 0},
        {"close_timeout": 0},
        {"offset_folder": 1},
        {"pop": 1},
        {"pop": True, "orderly": True},
        {"pop": True, "message_model": "broadcasting"},
        {"consume_from": 1_700_000_000_000, "pop": True},
        {"invisible_time": 0},
    ],
    ids=str,
)
def test_nor_for_a_push_consumer(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        PushConsumerSettings("group", namesrv="n:9876", **wrong)


def test_settings_come_by_name_or_as_an_object() -> None:
    settings = PullConsumerSettings("group", namesrv="n:9876", skip_gaps=True)
    assert pickle.loads(pickle.dumps(settings)) == settings
    consumer = AsyncPullConsumer(settings, auto_commit=False)
    assert (consumer.settings.skip_gaps, consumer.settings.auto_commit) == (True, False)
    with pytest.raises(InvalidSetting, match="no setting autoCommit"):
        AsyncPullConsumer("group", namesrv="n:9876", autoCommit=True)
    with pytest.raises(InvalidSetting, match="PushConsumerSettings are not"):
        AsyncPullConsumer(PushConsumerSettings("group", namesrv="n:9876"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "of", "headings"),
    [
        (ConsumerSettings, ClientSettings, "## Both kinds of consumer"),
        (PullConsumerSettings, ConsumerSettings, "## The pull consumer"),
        (PushConsumerSettings, ConsumerSettings, "## The push consumer"),
    ],
)
def test_every_setting_is_documented_with_its_default(kind: Any, of: Any, headings: str) -> None:
    section = DOCS.read_text().partition(headings)[2].partition("\n## ")[0]
    rows = {
        cells[0].strip(" `"): cells[1].strip(" `")
        for line in section.splitlines()
        if line.startswith("| `")
        for cells in [line.strip("|").split("|", 2)]
    }
    names = {each.name for each in fields(kind)} - {each.name for each in fields(of)}
    assert rows.keys() == names, f"docs/settings.md and {kind} differ: {rows.keys() ^ names}"
    defaults = kind("group", namesrv="n:9876")
    for name, told in rows.items():
        if name != "consumer_group":
            assert told == str(getattr(defaults, name)), name
