"""docs/settings.md tells of the settings that have no class of clients of their own."""

import inspect
import re
from dataclasses import fields

import pytest

from rocketpipe import (
    Attempt,
    AttemptRecorder,
    Credentials,
    JsonLinesRecorder,
    Message,
    MessageQueue,
    ParquetRecorder,
    RemotingSettings,
    SendContext,
    SendStatus,
)
from rocketpipe.client.recorder import attempt_record
from tests.docs.documents import ROOT

DOCS = (ROOT / "docs" / "settings.md").read_text()


def section(title: str) -> str:
    return DOCS.split(f"## {title}\n")[1].split("\n## ")[0]


def table(title: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section(title), re.MULTILINE))


def test_every_limit_of_a_connection_is_told_with_its_default() -> None:
    defaults = RemotingSettings()
    told = table("Connections: `RemotingSettings`")
    expected = {each.name: getattr(defaults, each.name) for each in fields(RemotingSettings)}
    expected["serialize_type"] = defaults.serialize_type.name
    assert told == {name: f"`{value}`" for name, value in expected.items()}


def test_every_part_of_credentials_is_told() -> None:
    told = re.findall(r"^- `(\w+)`:", section("Credentials"), re.MULTILINE)
    assert told == [each.name for each in fields(Credentials)]


@pytest.mark.parametrize("recorder", [JsonLinesRecorder, ParquetRecorder, AttemptRecorder])
def test_every_setting_of_a_recorder_is_told_with_its_default(
    recorder: type[AttemptRecorder],
) -> None:
    told = table("Recorders")
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(recorder).parameters.items()
        if parameter.default is not parameter.empty and name != "threads"  # for our own tests
    }
    assert told.keys() == defaults.keys()
    for name, default in defaults.items():
        assert f"`{default}`" in told[name], name


def test_every_field_of_a_record_is_told() -> None:
    page = (ROOT / "docs" / "sending-through-failures.md").read_text()
    fields_told = page.split("A record has these fields")[1].split("\n\n")[1]
    told = {
        name
        for cell in re.findall(r"^\| (`.*?`) \|", fields_told, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    }
    queue = MessageQueue("orders", "broker-a", 0)
    attempt = Attempt(queue, "a:10911", 1, 0.1, SendStatus.SEND_OK, None, "in turn", ())
    context = SendContext(
        producer_group="g",
        messages=[Message("orders", b"x")],
        message_id="1",
        body_bytes=1,
        is_oneway=False,
        is_transaction=False,
        attempt_number=1,
        queue=queue,
        attempt=attempt,
    )
    assert told == attempt_record(context).keys()


def test_every_figure_of_the_page_on_sizing_was_measured() -> None:
    told = set(re.findall(r"\d+\.\d+x", (ROOT / "docs" / "sizing.md").read_text()))
    measured = set(re.findall(r"\d+\.\d+x", (ROOT / "bench" / "RESULTS.md").read_text()))
    assert told <= measured, f"docs/sizing.md has figures that bench/RESULTS.md has not: {told}"
