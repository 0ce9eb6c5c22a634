"""How the attributes of a topic are changed."""

import pytest

from rocketpipe.broker.attributes import AttributeFault, change_attributes


def test_attributes_are_added_changed_and_deleted() -> None:
    made = change_attributes({}, "+message.type=FIFO,+reserve.time=-1", is_new=True)
    assert made == {"message.type": "FIFO", "reserve.time": "-1"}
    changed = change_attributes(made, "+message.type=DELAY,-reserve.time", is_new=False)
    assert changed == {"message.type": "DELAY"}
    assert change_attributes(changed, None, is_new=False) == changed
    assert change_attributes(changed, "", is_new=False) == changed


FAULTS = [
    ("-message.type", True, "only add attribute is supported while creating topic"),
    ("-message.type", False, "attempt to delete a nonexistent key: message.type"),
    ("+other=1", True, "unsupported key: other"),
    ("+queue.type=BatchCQ", False, "attempt to update an unchangeable attribute. key: queue.type"),
    ("+queue.type=Odd", True, "value is not in set: "),
    ("+message.type=Odd", True, "value is not in set: "),
    ("+reserve.time=-2", True, "value is not in range(-1, 9223372036854775807)"),
    ("+reserve.time=soon", True, "soon"),
    ("message.type=FIFO", True, "add/alter attribute format is wrong: message.type"),
    ("message.type", True, "delete attribute format is wrong: message.type"),
    ("+message.type=FIFO,+message.type=DELAY", True, "key duplication: +message.type"),
    ("+message.type=FIFO,-message.type", True, "alter duplication key. key: message.type"),
    ("+=1", True, "kv string format wrong."),
    ("+a-b=1", True, "kv string format wrong."),
    ("+a+b=1", True, "kv string format wrong."),
]


@pytest.mark.parametrize(("changes", "is_new", "words"), FAULTS)
def test_what_can_not_be_changed_is_told_in_apaches_words(
    changes: str, is_new: bool, words: str
) -> None:
    with pytest.raises(AttributeFault) as caught:
        change_attributes({}, changes, is_new=is_new)
    assert words in str(caught.value)
