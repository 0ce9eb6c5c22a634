"""The page: what is in it, what is not, and that nothing in it can do harm."""

import errno
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rocketpipe.report import ReportFacts, write_report
from rocketpipe.report.page import render
from rocketpipe.report.svg import Axis, TimeAxis, decades, nice_ticks
from tests.unit.report.sample_facts import HOSTILE, nothing, samples


class Elements(HTMLParser):
    """Which elements and attributes there are, and whether each is closed."""

    VOID = frozenset({"meta", "br", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("name", samples())
def test_every_report_is_whole_html_of_harmless_elements(name: str) -> None:
    page = Elements(render(samples()[name]))
    assert not page.names & {"script", "img", "iframe", "object", "link", "a", "image", "use"}
    assert not {each for each in page.attributes if each.startswith("on")}
    assert not page.attributes & {"href", "src", "xlink:href", "style"}


def test_hostile_texts_are_shown_as_they_are() -> None:
    text = render(samples()["hostile"])
    assert "<script" not in text
    page = Elements(text)
    told = "".join(page.texts)
    assert told.count(HOSTILE) > 20


def test_sections_come_with_their_data() -> None:
    def headings(facts: ReportFacts) -> list[str]:
        return [part.split("</h2>")[0] for part in render(facts).split("<h2>")[1:]]

    assert headings(samples()["compared"]) == [
        *("Reconciliation", "Policies side by side", "Traffic", "Latency", "Sends and queues"),
        *("Pipeline", "About this report"),
    ]
    assert headings(nothing()) == []


def test_every_picture_has_its_reading() -> None:
    text = render(samples()["compared"])
    assert text.count("<figure") == text.count('<figcaption class="reading">') == 11
    assert '<figcaption class="reading"></figcaption>' not in text


def test_a_loss_is_seen_at_once() -> None:
    text = render(samples()["lossy"])
    assert '<div class="verdict bad">' in text
    assert "7F0000010F9818B4AAC27B0C8E9C0013" in text
    assert "and 11 more, in the tables" in text
    assert '<div class="verdict good">' in render(samples()["faults"])


def test_a_full_disk_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "new" / "report.html"
    write_report(file, nothing())
    before = file.read_text()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_report(file, samples()["one-broker"])
    assert [each.name for each in file.parent.iterdir()] == ["report.html"]
    assert file.read_text() == before


# Scales.


def test_scales() -> None:
    assert nice_ticks(0) == [0, 1]
    assert nice_ticks(9) == [0, 2.5, 5, 7.5, 10]
    assert nice_ticks(1000, 2) == [0, 500, 1000]
    assert decades(0.3, 80) == [0.1, 1, 10, 100]
    assert decades(1, 1) == [1, 10]
    log = Axis(1, 100, 0, 200, is_log=True)
    assert [log.y(value) for value in (1, 10, 100, 1e6)] == [200, 100, 0, 0]
    flat = Axis(5, 5, 0, 200)
    assert flat.y(5) == 200


def test_times_have_few_ticks_whatever_they_span() -> None:
    for span in (1, 999, 5000, 90_000, 3_600_000, 86_400_000, 400 * 86_400_000):
        axis = TimeAxis(1_794_943_534_000, 1_794_943_534_000 + span, 60, 990)
        ticks = axis.ticks(10)
        assert 0 < len(ticks) <= 11 or span == 3_600_000
        assert all(60 <= axis.x(tick) <= 990 for tick in ticks)
    assert axis.x(0) == 60  # what lies outside stands at the edge
