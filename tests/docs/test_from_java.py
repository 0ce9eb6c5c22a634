"""docs/from-java.md has a place for every public method of Java's clients, and names only ours."""

import dataclasses
import re

import pytest

import rocketpipe
from rocketpipe import (
    Admin,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    SendResult,
    TransactionProducer,
)
from tests.docs.documents import ROOT

DOCS = (ROOT / "docs" / "from-java.md").read_text()
METHODS: dict[str, list[str]] = {}
for line in (ROOT / "tests" / "docs" / "java_methods.txt").read_text().splitlines()[1:]:
    METHODS.setdefault(line.split()[0], []).append(line.split()[1])


def section(java_class: str) -> str:
    (text,) = re.findall(rf"^## `{java_class}`:.*?(?=^## )", DOCS, re.MULTILINE | re.DOTALL)
    return str(text)


def names_of(method: str) -> set[str]:
    """How a document may name it: as a method, or a setter and getter as the property."""
    names = {method}
    if found := re.fullmatch(r"(?:get|set|is)([A-Z]\w*)", method):
        names.add(found[1][0].lower() + found[1][1:])
    return names


@pytest.mark.parametrize("java_class", METHODS)
def test_every_java_method_is_told(java_class: str) -> None:
    told = set(re.findall(r"[`(., ]([a-zA-Z]\w+)(?=[`(,. )])", section(java_class)))
    missing = [method for method in METHODS[java_class] if not names_of(method) & told]
    assert not missing, f"docs/from-java.md, {java_class}: nothing about {missing}"


def test_what_it_offers_instead_exists() -> None:
    settings = {
        field.name
        for kind in (ProducerSettings, PullConsumerSettings, PushConsumerSettings)
        for field in dataclasses.fields(kind)
    }
    faces = (Admin, Producer, PullConsumer, PushConsumer, TransactionProducer, Message, SendResult)
    known = settings | {name for face in faces for name in dir(face)}
    known |= set(dir(rocketpipe)) | {"detector", "probe_interval", "write_buffer_bytes_max"}
    known |= {"execute", "check", "delay_level", "start", "arg", "queue", "selector"}
    known |= {"physical_offset", "born_timestamp_ms", "reconsume_times", "commit"}
    known |= {"messages_max", "timeout", "boundary", "order", "cluster"}
    # Ours are those in snake case; Java has none.
    told = set(re.findall(r"[`(., ]([a-z]+(?:_[a-z]+)+)\b", DOCS))
    assert told <= known, f"docs/from-java.md offers what does not exist: {told - known}"
