"""Every kind of report in a real browser: legible at both widths, without a word of complaint."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpipe.report import write_report
from tests.report.chromium import Page, chromium
from tests.unit.report.sample_facts import samples

pytestmark = pytest.mark.slow

SCREENSHOTS = Path(__file__).parents[2] / "out" / "report-screenshots"
LEGIBLE_PX = 9.5
BYTES_MAX = 2_000_000

# What a person would see: how far the page reaches, what sticks out, what is too small, whether
# texts of a picture run out of it or into each other.
LOOK = """(() => {
  const width = document.documentElement.clientWidth;
  const shown = element => element.getClientRects().length > 0;
  const describe = element => `${element.tagName} ${element.className.baseVal ??
    element.className}: ${element.textContent.slice(0, 60)}`;
  const sticking = [...document.querySelectorAll('body *')].filter(element =>
    shown(element) && !element.closest('.scroll') &&
    (element.getBoundingClientRect().right > width + 1 ||
     element.getBoundingClientRect().left < -1));
  const small = [...document.querySelectorAll('body *')].filter(element => {
    if (!shown(element) || ![...element.childNodes].some(node => node.nodeType === 3 &&
        node.textContent.trim())) return false;
    let size = parseFloat(getComputedStyle(element).fontSize);
    const svg = element.closest('svg');
    if (element.tagName === 'title') return false;
    if (svg) size *= svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    return size < LEGIBLE;
  });
  const cut = [], covering = [];
  for (const svg of document.querySelectorAll('svg')) {
    if (!shown(svg)) continue;
    const box = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].map(
      text => [text, text.getBoundingClientRect()]);
    for (const [text, at] of texts)
      if (at.left < box.left - 1 || at.right > box.right + 1 || at.bottom > box.bottom + 2 ||
          at.top < box.top - 2) cut.push(describe(text));
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
      const [a, b] = [texts[i][1], texts[j][1]];
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
        covering.push(`${describe(texts[i][0])} and ${describe(texts[j][0])}`);
    }
  }
  return {
    overflow: document.documentElement.scrollWidth - width,
    sticking: sticking.slice(0, 5).map(describe),
    small: small.slice(0, 5).map(describe),
    cut: cut.slice(0, 5),
    covering: covering.slice(0, 5),
    pictures: [...document.querySelectorAll('figure svg')].filter(shown).length,
    scripts: document.scripts.length,
    alerts: window.alerts,
  };
})()""".replace("LEGIBLE", str(LEGIBLE_PX))


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page()


@pytest.mark.parametrize("name", samples())
def test_a_report_is_legible(name: str, page: Page, tmp_path: Path) -> None:
    facts = samples()[name]
    file = tmp_path / f"{name}.html"
    write_report(file, facts)
    assert file.stat().st_size < BYTES_MAX
    for width in (400, 1400):
        page.open(file.as_uri(), width=width)
        page.screenshot(SCREENSHOTS / f"{name}-{width}.png")
        seen = page.evaluate(LOOK)
        assert seen.pop("pictures") > 4 or name == "nothing"
        assert seen == {
            "overflow": 0,
            "sticking": [],
            "small": [],
            "cut": [],
            "covering": [],
            "scripts": 0,
        }, f"{name} at {width} px"
        assert page.complaints == []
        assert page.requests == [file.as_uri()]


def test_it_also_is_at_widths_between_and_in_the_dark(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_report(file, samples()["compared"])
    for width in (320, 600, 799, 800, 980):
        page.open(file.as_uri(), width=width, dark=True)
        seen = page.evaluate(LOOK)
        assert (seen["overflow"], seen["sticking"], seen["small"]) == (0, [], []), width
    page.screenshot(SCREENSHOTS / "dark-980.png")


def test_it_can_be_printed(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write_report(file, samples()["faults"])
    page.open(file.as_uri(), width=700)  # about what paper has
    page.call("Emulation.setEmulatedMedia", media="print")
    page.print(SCREENSHOTS / "print.pdf")
    assert (SCREENSHOTS / "print.pdf").read_bytes().startswith(b"%PDF")
    shown = "[...document.querySelectorAll('figure svg')].filter(s => s.getClientRects().length)"
    classes = page.evaluate(f"[...new Set({shown}.map(s => s.className.baseVal))].sort()")
    assert classes == ["half", "wide"]
    assert page.evaluate("document.querySelector('thead').getClientRects().length") == 1
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_look_finds_what_is_wrong(page: Page, tmp_path: Path) -> None:
    """The checks above would see it: each of these pages has one fault."""
    pages = {
        "overflow": "<div style='width:2000px;height:9px'></div>",
        "small": "<p style='font-size:7px'>tiny</p>",
        "cut": "<svg viewBox='0 0 100 20' width=100><text x=90 y=15>cut off</text></svg>",
        "covering": "<svg viewBox='0 0 99 20' width=99><text y=15>one</text><text y=14>two</text>",
    }
    for fault, body in pages.items():
        file = tmp_path / f"{fault}.html"
        file.write_text(f"<!doctype html><body>{body}")
        page.open(file.as_uri(), width=400)
        assert page.evaluate(LOOK)[fault], fault
    script = tmp_path / "script.html"
    script.write_text(
        "<!doctype html><script>console.error('x')</script><img src='http://127.0.0.1:9/x'>"
    )
    page.open(script.as_uri(), width=400)
    page.evaluate("1")
    assert page.complaints
    assert len(page.requests) == 2
