import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import InvalidSetting
from rocketpipe.wire.subscription import parse_tag_expression


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything_is_accepted_without_a_tag(expression: str | None) -> None:
    every = parse_tag_expression(expression)
    assert every.accepts(None)
    assert every.accepts("any")
    assert every.accepts_code(0)
    assert every.accepts_code(2112)


def test_a_broker_goes_by_hashes_and_a_client_by_tags() -> None:
    wanted = parse_tag_expression("Aa || TagB")
    assert wanted.accepts_code(2112)
    assert wanted.accepts("Aa")
    assert not wanted.accepts("BB")  # its hash is 2112 too
    assert not wanted.accepts(None)
    assert not wanted.accepts_code(0)


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_an_expression_of_separators_alone_is_refused_as_in_java(expression: str) -> None:
    with pytest.raises(InvalidSetting, match="names no tag"):
        parse_tag_expression(expression)


def test_blanks_are_trimmed_as_java_trims_them() -> None:
    assert parse_tag_expression("\x01\t a b \n||\u3000c").tags == {"a b", "\u3000c"}
    assert parse_tag_expression(" || ").tags == frozenset()


@given(st.text(st.sampled_from("ab| ")))
def test_no_tag_is_empty_or_has_blanks_around_it(expression: str) -> None:
    try:
        tags = parse_tag_expression(expression).tags
    except InvalidSetting:
        return
    assert all(tag and tag == tag.strip() for tag in tags)
