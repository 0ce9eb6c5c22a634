"""A Spark session as a command wants it: quiet, in UTC, and a clear line where there can be none.

Java and Spark write pages about every failure. The Java process therefore gets a log file for its
stderr, which nobody sees unless the session can't start; what fails later arrives here as an error
(`failures.py`).
"""

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from rocketpipe.errors import InvalidSetting, JobError
from rocketpipe.spark.jobs.failures import one_line

__all__ = ["spark_session"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
JAVA_MIN = 17
# Java looks at every bound and every null of Arrow's memory a second time unless it is told not to;
# that takes a third of what it costs Spark to make rows of our batches.
ARROW_ENVIRONMENT = {
    "ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true",
    "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false",
}
MASTER_SECONDS_MAX = 5.0  # for a Spark master to take a connection

_MASTER = re.compile(r"local(\[.*\])?|local-cluster\[.*\]|yarn|k8s://.+|spark://.+")


def spark_session(
    name: str,
    *,
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    quiet: bool = True,
) -> "SparkSession":
    """A session, or JobError if there is no PySpark, no Java, or no master that answers.

    `conf` goes before what is set here. With `quiet` false, Java may write to our stderr.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise JobError(f"Spark is missing ({error}): pip install 'rocketpipe[spark]'") from None
    _check_master(master)
    _check_java()
    # Workers are started by name, and would be the first Python on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for variable, value in ARROW_ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    is_local = master.startswith("local")
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_settings(is_local), **(conf or {})}.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as log, _stderr_to(log if quiet else None):
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise JobError(f"Spark can't start: {_reason(error, log)}") from error
    session.sparkContext.setLogLevel("OFF" if quiet else "WARN")
    if quiet:  # what fails in Python while Java calls it comes back as Java's error
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    return session


def _settings(is_local: bool) -> dict[str, str]:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # Spark's own default is a type that the Parquet format has given up.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.python.authenticate.socketTimeout": "120s",  # workers start slowly on a busy machine
    }
    for variable in ARROW_ENVIRONMENT:
        settings[f"spark.executorEnv.{variable}"] = os.environ[variable]
    if is_local:
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.host"] = "127.0.0.1"
    return settings


def _check_master(master: str) -> None:
    if not _MASTER.fullmatch(master):
        raise InvalidSetting(
            f"master is {master!r}: write local[*], local[N], spark://HOST:PORT, yarn or k8s://..."
        )
    if not master.startswith("spark://"):
        return
    # Spark itself would try for a minute, and then say that its context was stopped.
    failures = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise InvalidSetting(f"master is {master!r}: write spark://HOST:PORT")
        try:
            socket.create_connection((host, int(port)), MASTER_SECONDS_MAX).close()
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise JobError(f"no Spark master answers at {'; '.join(failures)}")


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is {home}" if home else "there is no java on the PATH"
        raise JobError(
            f"Spark needs Java {JAVA_MIN} or newer, and {where}: install a JDK, or set JAVA_HOME"
        )


def _reason(error: Exception, log: IO[bytes]) -> str:
    log.seek(0)
    text = log.read().decode(errors="replace")
    if "UnsupportedClassVersionError" in text:
        return f"it needs Java {JAVA_MIN} or newer. {_java_version()}".rstrip()
    complaints = [line for line in text.splitlines() if re.search(r"error|exception", line, re.I)]
    if "JAVA_GATEWAY_EXITED" in str(error) and (complaints or text.strip()):
        return " ".join((complaints or text.splitlines()[-1:])[0].split())
    return one_line(error)


def _java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=10).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.splitlines()[0] if told else ""


@contextmanager
def _stderr_to(log: IO[bytes] | None) -> Iterator[None]:
    """Let a process that is started meanwhile keep this file for its stderr."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
