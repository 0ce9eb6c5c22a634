"""The session of a job, in a process of its own: what Java is told comes before it starts."""

import os
import subprocess
import sys

import pytest

from tests.spark.conftest import require_java

PROGRAM = """
from rocketpipe.spark.jobs.session import spark_session

spark = spark_session("test", master="local[1]")
java = spark.sparkContext._jvm.org.apache.arrow
print(java.memory.BoundsChecking.BOUNDS_CHECKING_ENABLED)
print(java.vector.NullCheckingForGet.NULL_CHECKING_ENABLED)
print(spark.conf.get("spark.executorEnv.ARROW_ENABLE_UNSAFE_MEMORY_ACCESS"))
spark.stop()
"""


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "False False true"),
        ({"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "false"}, "True False false"),  # the user's word
    ],
)
def test_java_does_not_check_arrow_twice_unless_it_is_wanted(
    environment: dict[str, str], told: str
) -> None:
    require_java()
    inherited = {name: each for name, each in os.environ.items() if "ARROW" not in name}
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert finished.stdout.split() == told.split()
