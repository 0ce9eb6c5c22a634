"""The JSON dialect: any value survives it, and no bytes get more out of it than MalformedBody."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpipe.errors import MalformedBody
from rocketpipe.wire.fastjson import DEPTH_MAX, dumps, loads

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text()  # hypothesis leaves lone surrogates out
SCALARS = st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT
OBJECT_KEYS = st.dictionaries(TEXT | INTEGERS, SCALARS, max_size=4).map(
    lambda members: frozenset(members.items())
)


def values(keys: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Values of any shape; None in arrays alone, since it is left out of objects."""
    return st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner | st.none(), max_size=5) | st.dictionaries(keys, inner, max_size=5)
        ),
        max_leaves=20,
    )


@pytest.mark.slow
@given(values(TEXT | INTEGERS | OBJECT_KEYS))
def test_any_value_is_written_and_read_back(value: object) -> None:
    assert loads(dumps(value)) == value


@pytest.mark.slow
@given(values(TEXT))
def test_plain_json_is_read_alike_by_json_and_by_our_reader(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        assert loads(text.encode()) == value
        assert loads(b"{0:%s}" % text.encode()) == {0: value}  # the bare key keeps json out


@pytest.mark.slow
@given(values(TEXT | INTEGERS))
def test_standard_output_is_json(value: object) -> None:
    json.loads(dumps(value, standard=True))


@given(
    st.binary() | st.text(alphabet="{}[]:,\"'\\0123456789.-+eEtruefalsn \t\n$_u").map(str.encode)
)
def test_arbitrary_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        value = loads(body)
    except MalformedBody:
        return
    dumps(value)  # whatever was read can be written


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a:1",-1:"b:2"}', {0: "a:1", -1: "b:2"}),
        ('{{"q":0,"t":"x"}:7}', {frozenset({("q", 0), ("t", "x")}): 7}),
        ('{{"t":"x","q":0}:7,{"q":0,"t":"x"}:8}', {frozenset({("q", 0), ("t", "x")}): 8}),
        ("{'a':'it\\'s',b:true,$c_1:null}", {"a": "it's", "b": True, "$c_1": None}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("{0:1,0:2}", {0: 2}),
        (" {\t0 :\r\n[ 1 , 2.5e1,-0 ] } \n", {0: [1, 25.0, 0]}),
        ("{0:[1,],}", {0: [1]}),  # fastjson lets the last comma pass
        ('{0:{"a":"}"}}', {0: {"a": "}"}}),
        ('{0:{"a":"\\""}}', {0: {"a": '"'}}),
        (r'"\u4f60\ud83d\ude80\/\b\f\n\r\t\v\0\x41"', "你🚀/\b\f\n\r\t\v\0A"),
        ('"a\nb\x00"', "a\nb\x00"),
        ('"标签"', "标签"),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("null", None),
    ],
)
def test_the_dialect_is_read(text: str, value: object) -> None:
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[1", '{"a"', '{"a":', '{"a":1', "{0:", '"abc', "'abc", '"abc\\', "nul"),
        *("{]", "[}", "[1 2]", '{"a" 1}', "{,}", "[,]", "{0:1,,}", "1 2", "{} {}", "\0", "{0:1}\0"),
        *("NaN", "[Infinity]", "-Infinity", "1e999", "{0:-1e999}", "+1", "01", ".5", "0x10", "yes"),
        *("9223372036854775808", "{0:-9223372036854775809}", "1" * 5000, "{0:%s}" % ("1" * 5000)),
        *('"\\q"', '"\\u12"', '"\\ud800"', '{0:{"a":"\\ude80"}}'),
        *("{[1]:2}", "{1.5:2}", '{{"a":[1]}:2}', '{{"a":{}}:2}', "{:1}"),
    ],
)
def test_what_is_not_the_dialect_is_refused(text: str) -> None:
    with pytest.raises(MalformedBody):
        loads(text.encode())


@pytest.mark.parametrize(
    "body", [b"\xff", b'"\xc3"', b'{"a":"\xed\xa0\x80"}', b"\xff\xfe[\x00]\x00"]
)
def test_what_is_not_utf_8_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody, match="not UTF-8"):
        loads(body)


@pytest.mark.parametrize("opening", ["[", "{", '{"a":', "{0:", "[{", "{{0:"])
@pytest.mark.parametrize("times", [DEPTH_MAX + 1, 1000, 1_000_000])
def test_a_text_too_deep_is_refused(opening: str, times: int) -> None:
    with pytest.raises(MalformedBody, match="levels deep"):
        loads(opening.encode() * times)


@pytest.mark.parametrize("outside", ["%s", "{0:%s}"])
def test_depth_is_limited_alike_in_plain_json_and_the_dialect(outside: str) -> None:
    levels = DEPTH_MAX - outside.count("{")
    text = outside % ("[" * levels + "]" * levels)
    loads(text.encode())
    with pytest.raises(MalformedBody, match="levels deep"):
        loads(text.replace("[]", "[[]]").encode())


def test_none_is_left_out_of_objects_only() -> None:
    assert dumps({"a": None, "b": [None]}) == b'{"b":[null]}'


def test_standard_output_quotes_and_sorts_keys() -> None:
    assert dumps({"b": {1: "x", 0: "y"}, "a": 2}) == b'{"b":{1:"x",0:"y"},"a":2}'
    assert dumps({"b": {1: "x", 0: "y"}, "a": 2}, standard=True) == b'{"a":2,"b":{"0":"y","1":"x"}}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1.5: 2}, b"x"])
def test_what_has_no_json_form_is_our_mistake(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps(value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "{0:%s}" % ("[1," * 60 + "0" + "]" * 60 + ",1:2" * 20_000),
        "{0:1}" + " " * 100_000,
        '{0:"' + "\\" * 99_999,
        "{0:" + "{" * 60 + "a" * 100_000,
        "[" + '{"a":"}",b:1},' * 20_000 + "0]",
    ],
    ids=["members", "blanks", "backslashes", "name", "braces"],
)
def test_reading_takes_linear_time(text: str) -> None:
    start = time.process_time()
    with suppress(MalformedBody):
        loads(text.encode())
    assert time.process_time() - start < 10
