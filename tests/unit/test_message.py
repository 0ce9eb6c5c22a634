import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from rocketpipe.message import Message, MessageQueue, StoredMessage

STORED = StoredMessage(
    topic="orders",
    body=b"body",
    properties={"TAGS": "paid", "KEYS": "o-1  o-2", "UNIQ_KEY": "ABC"},
    queue_id=3,
    queue_offset=7,
    physical_offset=4096,
    flag=0,
    sys_flag=0,
    body_crc=0,
    born_timestamp_ms=1,
    born_host="10.0.0.1:50000",
    store_timestamp_ms=2,
    store_host="127.0.0.1:10911",
    reconsume_times=0,
    prepared_transaction_offset=0,
    store_size=100,
)


def test_a_single_key_is_one_key_and_not_its_letters() -> None:
    assert Message("t", b"", keys="o-1").keys == ("o-1",)
    assert Message("t", b"", keys=["o-1", "o-2"]).keys == ("o-1", "o-2")


def test_a_message_does_not_change_with_what_it_was_made_of() -> None:
    properties, keys = {"a": "1"}, ["k"]
    message = Message("t", b"", keys=keys, properties=properties)
    properties["b"] = "2"
    keys.append("l")
    assert message == Message("t", b"", keys="k", properties={"a": "1"})


def test_messages_cannot_be_changed() -> None:
    message: object = Message("t", b"")
    for value in (message, STORED):
        with pytest.raises(FrozenInstanceError):
            value.topic = "other"  # type: ignore[attr-defined]


def test_messages_are_picklable_and_hashable() -> None:
    sent = Message("t", b"b", tags="x", keys="k", properties={"a": "1"}, delay_ms=5)
    for value in (sent, STORED, MessageQueue("t", "broker-a", 1)):
        again = pickle.loads(pickle.dumps(value))
        assert again == value
        assert hash(again) == hash(value)


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    queues = [MessageQueue(t, b, q) for t in "ab" for b in "ab" for q in (2, 10)]
    queues.reverse()
    assert sorted(queues) == queues[::-1]


def test_a_stored_message_knows_its_tags_keys_and_ids() -> None:
    assert STORED.tags == "paid"
    assert STORED.keys == ("o-1", "o-2")
    assert STORED.message_id == "ABC"
    assert STORED.offset_message_id == "7F00000100002A9F0000000000001000"


def test_without_a_unique_id_a_message_goes_by_its_place() -> None:
    bare = replace(STORED, properties={})
    assert bare.message_id == bare.offset_message_id
    assert (bare.tags, bare.keys) == (None, ())


def test_messages_without_properties_share_them_and_nobody_can_write_there() -> None:
    first, second = Message("t", b"1"), Message("t", b"2")
    assert first.properties is second.properties == {}
    changes: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        (dict.update, ({"a": "1"},)),
        (dict.setdefault, ("a", "1")),
        (dict.__setitem__, ("a", "1")),
        (dict.__ior__, ({"a": "1"},)),
    ]
    for change, given in changes:
        with pytest.raises(TypeError, match="never changed"):
            getattr(first.properties, change.__name__)(*given)
    for copied in (copy.deepcopy(first), pickle.loads(pickle.dumps(first)), replace(first)):
        assert copied == first
        assert copied.properties is second.properties


def test_a_dataclass_of_ones_own_may_inherit_from_message() -> None:
    @dataclass(frozen=True)
    class Order(Message):
        number: int = 0

    assert Order("t", b"", keys="k", properties={"a": "1"}).keys == ("k",)
