"""What a demo says in the end, and when it says that something is wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.cli.demo import print_result
from rocketpipe.demo.books import Books
from rocketpipe.demo.demo import DemoResult, RunResult
from rocketpipe.demo.run import Sent
from rocketpipe.demo.settings import DemoSettings
from rocketpipe.demo.tally import Totals
from rocketpipe.errors import InvalidSetting
from rocketpipe.report.facts import Reconciled, ReportFacts

FREE = Totals(sends=60, acknowledged=60, retried=4, latencies=[0.002] * 59 + [0.9])
BOUND = Totals(sends=45, acknowledged=40, failed=5, resent=5, latencies=[0.003] * 40)
SENT = Sent(
    started_ms=1_750_000_000_000,
    topics={"activity": FREE, "orders": BOUND},
    errors={"SendFailed": 5},
    events=(),
    played=(),
    left_out=(),
)
BOOKS = Books(stored=103, lost=[], repeated=2, out_of_order=[])


def reconciled(topic: str, totals: Totals, **counts: int) -> Reconciled:
    known: dict[str, Any] = {
        "sent": totals.sends,
        "acknowledged": totals.acknowledged,
        "stored": totals.acknowledged,
        "lost": 0,
        "repeated": 0,
        "unacknowledged": 0,
    }
    return Reconciled(topic=topic, **{**known, **counts})


def result(*, books: Books = BOOKS, **orders: int) -> RunResult:
    rows = [reconciled("activity", FREE), reconciled("orders", BOUND, **orders)]
    facts = ReportFacts(title="", started_ms=0, ended_ms=1, window_ms=1, reconciliation=rows)
    return RunResult(
        policy="java5", sent=SENT, books=books, facts=facts, orders="orders", activity="activity"
    )


def test_all_is_well() -> None:
    assert result(unacknowledged=1).problems == []


def test_what_either_of_the_two_counts_misses_is_lost() -> None:
    lost = "messages that were acknowledged, and are not stored: 1"
    assert result(lost=1).problems == [lost]
    assert result(books=replace(BOOKS, lost=["ID"])).problems == [lost]


def test_orders_that_are_out_of_order_are_a_problem() -> None:
    books = replace(BOOKS, out_of_order=["customer-001"])
    assert result(books=books).problems == ["customers whose orders are out of order: 1"]


def test_books_that_do_not_agree_are_a_problem() -> None:
    (problem,) = result(acknowledged=39).problems
    assert problem == ("orders: the senders count 45 sent and 40 acknowledged, the audit (45, 39)")


def test_the_last_lines_tell_all_that_counts(capsys: pytest.CaptureFixture[str]) -> None:
    run = result(unacknowledged=1, lost=1)
    print_result(DemoResult(runs=[run], report=Path("out/report.html")), is_json=False)
    output, errors = capsys.readouterr()
    lines = dict(line.split("  ", 1) for line in output.splitlines())
    told = {name.strip(): text.strip() for name, text in lines.items()}
    assert told["sent"].startswith("105: 60 to any queue, 0 failed; 45 bound")
    assert (told["acknowledged"], told["lost"], told["repeated"]) == ("100", "1", "2")
    assert told["stored"].startswith("103: 1 without")
    assert told["p50, p99"] == "2.0 ms, 3.0 ms"
    assert told["report"] == "out/report.html"
    assert errors == "rocketpipe: messages that were acknowledged, and are not stored: 1\n"


def test_runs_are_shown_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [result(), replace(result(lost=2), policy="java4")]
    print_result(DemoResult(runs=runs, report=Path("out/report.html")), is_json=False)
    output, errors = capsys.readouterr()
    head, java5, java4, report = output.splitlines()
    assert head.split()[:5] == ["POLICY", "SENT", "ACKNOWLEDGED", "STORED", "LOST"]
    assert java5.split()[:6] == ["java5", "105", "100", "103", "0", "2"]
    assert java4.split()[4] == "2"
    assert report.split() == ["report", "out/report.html"]
    assert errors.startswith("rocketpipe: java4: messages that were acknowledged")


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "best"},
        {"scenario": "worst"},
        {"seconds": 1.0},
        {"seconds": float("nan")},
        {"rate": 0.0},
        {"rate": 1e9},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        DemoSettings(**{"folder": Path("out"), **wrong})


def test_a_folder_is_made_and_never_overwritten(tmp_path: Path) -> None:
    settings = DemoSettings(folder=tmp_path / "a" / "b")
    settings.make_folder()
    settings.make_folder()  # an empty one will do
    (settings.folder / "mine").touch()
    with pytest.raises(InvalidSetting, match="something in it"):
        settings.make_folder()
