"""Offsets in checkpoints: one text for the same offsets, and no guessing about others."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue
from rocketpipe.spark.offsets import from_json, to_json

queues = st.builds(MessageQueue, st.text(), st.text(), st.integers(0, 1 << 31))


@given(st.dictionaries(queues, st.integers(0, 1 << 62)), st.randoms())
def test_the_same_offsets_are_the_same_text_in_whatever_order(offsets, dice) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(offsets.items())
    dice.shuffle(shuffled)
    text = json.dumps(to_json(offsets))
    assert json.dumps(to_json(dict(shuffled))) == text
    assert from_json(json.loads(text)) == offsets


def test_the_text_that_checkpoints_hold() -> None:
    """It must be read for years: never change this test, add another for a new version."""
    text = '{"version": 1, "topics": {"orders": {"broker-a": {"2": 17, "10": 23}}}}'
    offsets = {
        MessageQueue("orders", "broker-a", 10): 23,
        MessageQueue("orders", "broker-a", 2): 17,
    }
    assert json.dumps(to_json(offsets)) == text
    assert from_json(json.loads(text)) == offsets


@pytest.mark.parametrize(
    "text",
    [
        *("{}", '{"version": 2, "topics": {}}', '{"version": 1}', '{"version": 1, "topics": []}'),
        *('{"version": 1, "topics": {"t": {"b": {"x": 1}}}}', '{"orders": {"0": 5}}'),
    ],
)
def test_what_is_not_ours_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="the checkpoint holds"):
        from_json(json.loads(text))
