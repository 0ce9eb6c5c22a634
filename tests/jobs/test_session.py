"""The session of the jobs, in a process of its own: it can have but one."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os
from pathlib import Path
from rocketpipe.spark.jobs.session import spark_session

def daemon(_):
    return Path(f"/proc/{os.getppid()}/cmdline").read_text().split("\\0")[2]

with spark_session("session", master="local[1]", conf={"spark.driver.memory": "512m"}) as spark:
    print(spark.sparkContext.parallelize([0], 1).map(daemon).first())
"""


def test_workers_are_forked_from_a_python_that_has_imported_what_they_need(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}  # not that of the tests
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.stdout.strip() == "rocketpipe.spark.daemon", ended.stderr
