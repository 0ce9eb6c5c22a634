"""Sending and consuming from the command line."""

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import CTRL_C, END_SECONDS_MAX, Program, Terminal

pytestmark = pytest.mark.slow


def bodies(program: Program, topic: str, *options: str) -> list[str]:
    return sorted(program.done("consume", topic, "--bodies", *options).output.splitlines())


def new_topic(program: Program, topic: str) -> str:
    program.done("topic", "create", topic, "--queues", "1")
    return topic


def test_messages_come_from_arguments_lines_and_files(program: Program, tmp_path: Path) -> None:
    topic = new_topic(program, "cli-send")
    sent = program.done("send", topic, "one", "two words")
    assert [line.split()[0] for line in sent.output.splitlines()] == ["SEND_OK", "SEND_OK"]
    lines = program.done("send", topic, stdin="three\n\nfour\n")
    assert lines.errors == "left out 1 empty line\n"
    file = tmp_path / "file"
    file.write_text("five\nsix\n")
    program.done("send", topic, "--file", str(file), "--lines")
    assert bodies(program, topic) == sorted(["one", "two words", "three", "four", "five", "six"])
    program.done("send", topic, "--file", str(file), "--tag", "whole")
    (whole,) = program.done("consume", topic, "--tag", "whole", "--json").objects
    assert whole["body"] == "five\nsix\n"


def test_a_message_has_what_it_was_given(program: Program) -> None:
    topic = new_topic(program, "cli-properties")
    options = ("--key", "a", "--key", "b", "--tag", "T", "--property", "colour=red")
    queue = ("--queue", "broker-b:0", "--group", "cli-senders")
    (sent,) = program.done("send", topic, "x", *options, *queue, "--json").objects
    assert (sent["broker"], sent["queue"], sent["offset"]) == ("broker-b", 0, 0)
    (read,) = program.done("consume", topic, "--json").objects
    assert (read["keys"], read["tags"]) == (["a", "b"], "T")
    assert read["properties"]["colour"] == "red"
    assert (read["broker"], read["message_id"]) == ("broker-b", sent["message_id"])
    for wrong in (
        ("--property", "red"),
        ("--queue", "broker-b"),
        ("--count", "0"),
        ("--rate", "0"),
    ):
        assert program("send", topic, "x", *wrong).code == 2
    assert program("send", topic, "x", "--size", "3").code == 2


@pytest.mark.parametrize("delay", [("--delay", "3s"), ("--delay-level", "2")])
def test_a_message_may_come_later(program: Program, delay: tuple[str, str]) -> None:
    topic = new_topic(program, f"cli-later{delay[0]}")
    (sent,) = program.done("send", topic, "later", *delay, "--json").objects
    assert sent["status"] == "SEND_OK"
    (read,) = program.done("consume", topic, "--follow", "--from", "first", "--limit", "1",
                           "--json").objects  # fmt: skip
    assert read["body"] == "later"
    assert read["stored_ms"] - read["born_ms"] >= 2900


def test_a_load_is_counted(program: Program) -> None:
    topic = new_topic(program, "cli-load")
    (report,) = program.done("send", topic, "--size", "10", "--count", "200", "--json").objects
    assert (report["sent"], report["failed"]) == (200, 0)
    assert 0 < report["p50_ms"] <= report["p99_ms"] <= report["max_ms"]
    slow = ("--count", "5", "--rate", "10")
    (report,) = program.done("send", topic, "x", *slow, "--json").objects
    assert report["seconds"] >= 0.4  # four pauses of a tenth
    (shown,) = program.done("topic", "show", topic, "--json").objects
    assert shown["messages"] == 205
    assert "messages a second" in program.done("send", topic, "x", "--count", "2").output
    failed = program("send", "cli-load", "x", "--count", "3", "--queue", "broker-x:0")
    assert failed.code == 1
    assert "the first that failed" in failed.errors


def test_consuming_begins_where_it_is_told_and_ends(program: Program) -> None:
    topic = new_topic(program, "cli-consume")
    empty = program.done("consume", topic)
    assert (empty.output, empty.errors) == ("", f"no messages in topic '{topic}'\n")
    program.done("send", topic, "1", "2", "3")
    assert bodies(program, topic) == ["1", "2", "3"]
    assert bodies(program, topic, "--from", "1h") == ["1", "2", "3"]
    assert bodies(program, topic, "--from", "last") == []
    assert len(bodies(program, topic, "--limit", "2")) == 2
    # A group goes on where it was; nobody's reading leaves no trace.
    assert len(bodies(program, topic, "--group", "cli-group-1", "--limit", "1")) == 1
    assert len(bodies(program, topic, "--group", "cli-group-1")) == 2
    assert bodies(program, topic, "--group", "cli-group-1") == []
    assert program("consume", "cli-nothing").code == 1
    assert program("consume", topic, "--tag", "a", "--sql", "b = 1").code == 2


def test_a_filter_that_brokers_refuse_is_an_error_in_the_end(program: Program) -> None:
    topic = new_topic(program, "cli-sql")  # by default brokers have no SQL92
    program.done("send", topic, "x")
    refused = program("consume", topic, "--sql", "colour = 'red'")
    assert (refused.code, refused.output) == (1, "")
    assert "filter" in refused.errors


def test_following_ends_with_ctrl_c_and_what_was_printed_is_consumed(program: Program) -> None:
    topic = new_topic(program, "cli-follow")
    options = ("--group", "cli-followers", "--from", "first", "--follow", "--bodies")
    process = program.start("consume", topic, *options)
    try:
        program.done("send", topic, "while it runs")
        assert process.stdout is not None
        assert process.stdout.readline() == "while it runs\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=END_SECONDS_MAX)
    finally:
        process.kill()
    assert (process.returncode, errors) == (130, "")
    (shown,) = program.done("group", "show", "cli-followers", "--json").objects
    assert shown["lag"] == 0


def test_ctrl_c_ends_a_load_and_what_was_sent_is_told(program: Program) -> None:
    topic = new_topic(program, "cli-stopped-load")
    load = ("--size", "10", "--count", "1000000", "--rate", "200", "--json")
    process = program.start("send", topic, *load)

    def stored() -> int:
        (shown,) = program.done("topic", "show", topic, "--json").objects
        return int(shown["messages"])

    try:
        deadline = time.monotonic() + END_SECONDS_MAX
        while stored() < 10 and time.monotonic() < deadline:
            pass  # asking takes its time
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=END_SECONDS_MAX)
    finally:
        process.kill()
    assert (process.returncode, errors) == (130, "")
    assert 10 <= json.loads(output)["sent"] == stored()


def test_a_person_sees_how_far_a_load_is(program: Program) -> None:
    topic = new_topic(program, "cli-bar")
    load = ("--size", "10", "--count", "1000000", "--rate", "5")
    with Terminal(program, "send", topic, *load) as terminal:
        terminal.read_until("1/1000000")  # or 11, if that was not to be seen
        terminal.type(CTRL_C)
        code, seen = terminal.end()
    assert code == 130
    assert "messages a second" in seen
    assert "Traceback" not in seen


def test_ctrl_c_ends_the_reading_of_lines(program: Program) -> None:
    topic = new_topic(program, "cli-stopped")
    process = program.start("send", topic, stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("SEND_OK")
        process.send_signal(signal.SIGINT)
        assert process.wait(END_SECONDS_MAX) == 130
        assert process.stderr is not None
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_has_seen_enough_is_no_error_to_talk_about(program: Program) -> None:
    topic = new_topic(program, "cli-pipe")
    program.done("send", topic, "x" * 1000, "--count", "500")
    process = program.start("consume", topic)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        with process.stderr:
            assert process.stderr.read() == ""
        assert process.wait(END_SECONDS_MAX) == 1
    finally:
        process.kill()


def in_terminal(program: Program, *arguments: str, columns: int) -> str:
    """What a person sees."""
    with Terminal(program, *arguments, columns=columns) as terminal:
        code, seen = terminal.end()
    assert code == 0, seen
    return seen


def test_terminals_have_colours_and_pipes_have_not(program: Program) -> None:
    assert "\x1b[" not in program.done("broker", "list").output
    seen = in_terminal(program, "broker", "list", columns=120)
    assert "\x1b[1m" in seen


def test_nothing_is_cut_off_in_a_narrow_terminal(program: Program) -> None:
    topic = new_topic(program, "cli-narrow")
    (sent,) = program.done("send", topic, "x", "--key", "k", "--json").objects
    seen = in_terminal(program, "message", "find", topic, "--key", "k", columns=50)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert max(map(len, plain.splitlines())) <= 50
    assert sent["message_id"] in plain.split()


def test_what_a_message_holds_can_not_take_over_a_terminal(program: Program) -> None:
    topic = new_topic(program, "cli-hostile")
    program.done("send", topic, "\x1b[31mred\x07", "--key", "k")
    for command in (("consume", topic, "--bodies"), ("message", "find", topic, "--key", "k")):
        seen = in_terminal(program, *command, columns=120)
        assert "\x1b[31m" not in seen
        assert "\x07" not in seen
        assert "red" in seen


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_shells_can_complete(program: Program, shell: str) -> None:
    pytest.importorskip("shtab")
    script = program.done("completion", shell).output
    assert "rocketpipe" in script
    assert "consume" in script


def test_bash_takes_its_completion(program: Program, tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    file = tmp_path / "completion"
    file.write_text(program.done("completion", "bash").output)
    ask = (
        f"source {file}; COMP_WORDS=(rocketpipe top); COMP_CWORD=1; _shtab_rocketpipe; "
        'echo "${COMPREPLY[@]}"'
    )
    finished = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["topic"]


def test_it_is_also_a_module(program: Program) -> None:
    helped = program.done("--help")
    for command in ("serve", "send", "consume", "topic", "route", "group", "message", "offsets"):
        assert command in helped.output
