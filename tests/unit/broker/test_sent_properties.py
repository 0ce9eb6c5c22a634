"""What is added to properties, however they are written."""

from hypothesis import example, given
from hypothesis import strategies as st

from rocketpipe.broker.sent_properties import PropertyTreatment
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.wire.properties import decode_properties

ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}

treatment = PropertyTreatment(BrokerSettings(), lambda: "MADE")

names = st.sampled_from(
    [
        *("UNIQ_KEY", "MY_UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "TRAN_MSG", "TIMER_DELAY_MS"),
        *("POP_CK", "CLUSTER", "MSG_REGION", "TRACE_ON", "INNER_NUM", "own", ""),
    ]
)
values = st.sampled_from(["", "a", "true", "false", "FALSE", "1", "名", "x\x01y", "UNIQ_KEY"])
pairs = st.lists(st.tuples(names, values), max_size=6)


@given(pairs, st.booleans())
@example([("UNIQ_KEY", "a"), ("POP_CK", "1")], True)
@example([("UNIQ_KEY", "a"), ("INNER_NUM", "1")], True)
@example([("UNIQ_KEY", "a"), ("own", "x")], False)
def test_the_quick_way_and_the_slow_one_come_to_the_same(
    pairs: list[tuple[str, str]], is_ended: bool
) -> None:
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs) + "\x02" * is_ended
    sent = decode_properties(text)
    treated = treatment.treat(text)
    expected = {**sent, **ADDED}
    expected.setdefault("UNIQ_KEY", "MADE")
    expected.pop("POP_CK", None)
    assert decode_properties(treated.text) == expected
    assert treated.text.endswith("\x02")
    assert treated.unique_id == expected["UNIQ_KEY"]
    assert treated.wait_store_ok == (sent.get("WAIT", "true").lower() == "true")
    if treated.decoded is None:
        asking = {"DELAY", "TRAN_MSG", "TIMER_DELAY_MS", "INNER_NUM"}
        assert not asking & sent.keys()
