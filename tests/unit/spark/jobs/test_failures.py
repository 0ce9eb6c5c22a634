"""One line out of what Spark says."""

import pytest

from rocketpipe.errors import JobError, NoRoute
from rocketpipe.spark.jobs.failures import one_line, one_line_errors

STREAM = """[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: [PYTHON_DATA] x
Traceback (most recent call last):
  File "a.py", line 1, in f
    raise NoRoute(topic)
rocketpipe.errors.NoRoute: no route to topic 'nope': TOPIC_NOT_EXIST (asked NameServer a:1)
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: x"""
JAVA = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.Foo.bar(Foo.scala:1)
Caused by: org.apache.spark.SparkException: Task failed
\tat org.apache.Foo.bar(Foo.scala:1)
Caused by: java.nio.file.AccessDeniedException: /data/t/part-0
\t... 3 more"""

FULL = "No space left on device"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (STREAM, "no route to topic 'nope': TOPIC_NOT_EXIST (asked NameServer a:1)"),
        (JAVA, "/data/t/part-0 (AccessDeniedException)"),
        (
            "An error occurred while calling o1.mkdirs.\n: a.b.NoFolder: x is a file",
            "x is a file (NoFolder)",
        ),
        (f"{JAVA}\nCaused by: java.io.IOException: {FULL}\nCaused by: x.Y: z", FULL),
        ("[PATH_NOT_FOUND] No path: file:/x. SQLSTATE: 42K03", "No path: file:/x."),
        ("Traceback:\n  x\nValueError: bad thing\n", "bad thing (ValueError)"),
        (
            "[STREAM_FAILED] Query [id = a-b, runId = c-d] terminated with exception: it broke. "
            "SQLSTATE: XXKST\n=== Streaming Query ===",
            "it broke.",
        ),
        ("", "Exception"),
    ],
)  # fmt: skip
def test_the_line_says_what_matters(text: str, line: str) -> None:
    assert one_line(Exception(text)) == line


def test_our_own_errors_stay_as_they_are() -> None:
    error = NoRoute("t", ["a"], "r")
    with pytest.raises(NoRoute) as raised, one_line_errors():
        raise error
    assert raised.value is error
    with pytest.raises(JobError, match="bad thing"), one_line_errors():
        raise ValueError("bad thing")
