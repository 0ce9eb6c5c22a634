"""docs/api.md is what the code says, and the code says of each name what its caller gets."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import rocketpipe
from scripts.api_docs import PAGE, PARTS, page


def public_things() -> Iterator[tuple[str, Any]]:
    for title, part in PARTS:
        for name in part.__all__:
            thing = getattr(part, name)
            if not inspect.isclass(thing) and not inspect.isfunction(thing):
                continue  # a constant, or the name of a type
            yield f"{title}.{name}", thing
            if inspect.isclass(thing):
                for member in dir(thing):
                    found = inspect.getattr_static(thing, member)
                    home = next((each for each in thing.__mro__ if member in vars(each)), type)
                    # What travels on the wire has methods for that, which no caller needs.
                    is_ours = home.__module__.startswith("rocketpipe.") and not (
                        home.__module__.startswith(("rocketpipe.wire.", "rocketpipe.testing."))
                    )
                    is_plain = not member.startswith("_") and not member.endswith("_json")
                    if is_plain and is_ours and _is_behaviour(found):
                        yield f"{title}.{name}.{member}", found


def _is_behaviour(member: object) -> bool:
    kinds = (property, classmethod, staticmethod)
    return isinstance(member, kinds) or inspect.isfunction(member)


def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE.read_text(), "docs/api.md: run .venv/bin/python scripts/api_docs.py"


@pytest.mark.parametrize(
    ("name", "thing"), [pytest.param(*each, id=each[0]) for each in public_things()]
)
def test_every_public_name_says_what_its_caller_gets(name: str, thing: object) -> None:
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    assert not text.startswith(f"{name.rsplit('.')[-1]}("), f"{name}: a docstring, not a signature"


def test_help_of_a_client_begins_with_what_it_does_and_an_example() -> None:
    for kind in ("Producer", "PullConsumer", "PushConsumer", "Admin", "TransactionProducer"):
        for name in (kind, f"Async{kind}"):
            text = " ".join((inspect.getdoc(getattr(rocketpipe, name)) or "").split())
            assert f"with {name}(" in text, f"help(rocketpipe.{name}) shows no example"
            if kind != "TransactionProducer":  # which is a Producer
                assert "Settings are those of" in text, f"help(rocketpipe.{name}): which settings?"
