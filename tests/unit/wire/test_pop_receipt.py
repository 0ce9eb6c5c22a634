"""Receipts, the offsets of an answer, and acknowledgements of many: as Apache writes them."""

import pytest

from rocketpipe.errors import MalformedBody, MalformedHeader
from rocketpipe.wire.bodies.pop import BatchAck, BatchAckRequest, bit_set
from rocketpipe.wire.pop_receipt import (
    NORMAL,
    RETRY_V1,
    RETRY_V2,
    Receipt,
    kind_of,
    message_offset_info,
    order_count_info,
    pop_retry_topic,
    real_topic,
    start_offset_info,
    start_offsets,
)

TEXT = "5 1000 60000 3 1 broker-a 0 6"
# As BatchAckMessageRequestBody of 5.5.0 encodes it, with the bits 0 and 9 set.
BATCH = (
    b'{"acks":[{"b":"AQI=","c":"g","it":20,"pt":10,"q":2,"r":"1","rq":3,"so":5,"t":"t"}],'
    b'"brokerName":"broker-a"}'
)


def test_a_receipt_is_eight_words() -> None:
    receipt = Receipt(5, 1000, 60_000, 3, RETRY_V1, "broker-a", 0, 6)
    assert Receipt.parse(TEXT) == receipt
    assert str(receipt) == TEXT
    assert not receipt.is_ordered
    assert Receipt.parse("5 1000 60000 999 0 broker-a 0 6").is_ordered
    assert Receipt.parse("5 1000 60000 3 1 broker-a").queue_offset == -1


@pytest.mark.parametrize(
    "text", ["", "1 2 3 4 5", "a 2 3 4 0 b 0 0", "1 2 3 4 0 b x 0", f"{1 << 63} 2 3 4 0 b 0 0"]
)
def test_what_is_no_receipt_is_said_so(text: str) -> None:
    with pytest.raises(MalformedHeader, match="extraInfo"):
        Receipt.parse(text)


def test_topics_of_retries_have_two_kinds_of_names() -> None:
    assert pop_retry_topic("g", "orders", RETRY_V1) == "%RETRY%g_orders"
    assert pop_retry_topic("g", "orders", RETRY_V2) == "%RETRY%g+orders"
    for kind in (NORMAL, RETRY_V1, RETRY_V2):
        assert kind_of(real_topic("g", "orders", kind)) == kind
    with pytest.raises(MalformedHeader, match="no kind of topic"):
        real_topic("g", "orders", "7")


def test_what_an_answer_says_of_queues() -> None:
    assert start_offset_info(NORMAL, 2, 17) == "0 2 17"
    assert message_offset_info(RETRY_V1, 0, [3, 4]) == "1 0 3,4"
    assert order_count_info(2, [5, 6], {}) == "0 2 0"
    assert order_count_info(2, [5, 6], {5: 2}) == "0 qo2%5 2;0 2 0"
    assert order_count_info(2, [5, 6], {5: 2, 6: 1}) == "0 qo2%5 2;0 qo2%6 1;0 2 1"
    assert start_offsets("0 0 5;1 0 99;0 2 7") == {0: 5, 2: 7}
    assert start_offsets("") == {}
    for wrong in ("0 0", "0 x 1", "0 0 0 0"):
        with pytest.raises(MalformedHeader, match="startOffsetInfo"):
            start_offsets(wrong)


def test_a_batch_of_acknowledgements_is_javas() -> None:
    batch = BatchAckRequest.decode(BATCH)
    assert batch.encode() == BATCH
    (ack,) = batch.acks
    assert list(ack.offsets()) == [5, 14]
    assert bit_set([0, 9]) == ack.bit_set
    assert bit_set([]) == ""
    for wrong in ("?", "A", "A" * 20_000):
        with pytest.raises(MalformedBody, match=r"BatchAck\.b"):
            list(BatchAck(consumer_group="g", topic="t", bit_set=wrong).offsets())
