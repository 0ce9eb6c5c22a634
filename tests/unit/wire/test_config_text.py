"""Settings as Java's properties text."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import MalformedBody
from rocketpipe.wire.config_text import format_config, parse_config


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_any_settings_are_written_and_read_back(settings: dict[str, str]) -> None:
    text = format_config(settings)
    assert parse_config(text) == settings
    assert text.count(b"\n") == len(settings)
    assert text.isascii()  # Properties.load takes each byte for a character


@given(st.binary())
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with suppress(MalformedBody):
        parse_config(text)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=1\nb=2\n", {"a": "1", "b": "2"}),
        (
            "namesrvAddr=127.0.0.1:9876;127.0.0.1:9877",
            {"namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877"},
        ),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("# no=1\n ! no=2\n\n  a = 1 \n", {"a": "1 "}),
        ("a: 1\nb 2\nc", {"a": "1", "b": "2", "c": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a==1", {"a": "=1"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        (r"a=\u4f60\ud83d\ude80\t\\x", {"a": "你🚀\t\\x"}),
        (r"a=C:\users", {"a": r"C:\users"}),  # a Java broker writes its values bare
        ("a=你", {"a": "你"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_javas_format_is_read(text: str, settings: dict[str, str]) -> None:
    assert parse_config(text.encode()) == settings


def test_only_what_would_be_misread_is_escaped() -> None:
    settings = {"namesrvAddr": "127.0.0.1:9876", "a b": " x#=", "dir": "C:\\x"}
    assert format_config(settings) == b"namesrvAddr=127.0.0.1:9876\na\\ b=\\ x#=\ndir=C:\\\\x\n"


@pytest.mark.parametrize("text", [b"a=\xff", rb"a=\ud800"])
def test_what_is_not_text_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedBody):
        parse_config(text)
