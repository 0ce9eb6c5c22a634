"""Trace messages as an audit reads them."""

from dataclasses import replace

from rocketpipe.spark.jobs.attempts import trace_rows
from rocketpipe.wire.trace import EndTransaction, Pub, Recall, SubBefore, Trace, encode_traces

BROKERS = {"10.0.0.1:10911": "broker-a"}
PUB = Pub(
    timestamp_ms=1_794_943_534_000,
    region_id="DefaultRegion",
    group="order-service",
    topic="orders",
    message_id="A,B",
    tags=None,
    keys=None,
    store_host="10.0.0.1:10911",
    body_length=64,
    cost_ms=7,
    message_type=0,
    offset_message_id="00,01",
    is_success=True,
)


def test_a_send_becomes_an_attempt_of_all_its_messages() -> None:
    (row,) = trace_rows(encode_traces([PUB]).encode(), BROKERS)
    assert (row["kind"], row["message_ids"], row["messages"]) == ("Pub", ["A", "B"], 2)
    assert (row["broker"], row["status"], row["elapsed_ms"]) == ("broker-a", "SEND_OK", 7.0)
    assert not row["is_transaction"]
    assert not row["is_delayed"]


def test_a_broker_that_nobody_knows_is_named_by_its_address() -> None:
    (row,) = trace_rows(encode_traces([PUB]).encode(), {})
    assert row["broker"] == "10.0.0.1:10911"


def test_what_is_not_about_a_send_is_left_out_and_nonsense_is_told() -> None:
    end = EndTransaction(
        *(1, "r", "g", "orders", "C", None, None, "10.0.0.1:10911", 2, "C", "COMMIT_MESSAGE", False)
    )
    others: list[Trace] = [
        SubBefore(1, "r", "g", "q", "D", 0, None),
        Recall(1, "r", "g", "orders", "E", True),
    ]
    body = b"Pub\x01late\x02" + encode_traces([*others, end, PUB]).encode() + b"\xff\x02\x02cut"
    rows = list(trace_rows(body, BROKERS))
    assert [row["kind"] for row in rows] == ["bad", "EndTransaction", "Pub", "bad", "bad"]
    assert "lacks fields" in rows[0]["bad"]
    assert (rows[1]["state"], rows[1]["message_ids"]) == ("COMMIT_MESSAGE", ["C"])


def test_half_delayed_and_unsafe_messages_are_told_apart() -> None:
    traces = [replace(PUB, message_type=kind, is_success=kind == 1) for kind in (1, 3)]
    half, delayed = trace_rows(encode_traces(traces).encode(), BROKERS)
    assert (half["is_transaction"], half["is_delayed"], half["status"]) == (True, False, "SEND_OK")
    assert (delayed["is_delayed"], delayed["status"]) == (True, "NOT_SAFE")
