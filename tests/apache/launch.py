"""Starts Java so that it can't outlive this Python, however this Python ends."""

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from tests.apache.jars import find_java, jars

# The kernel ends the process with its parent, also when that is killed (PR_SET_PDEATHSIG is 1).
# The setting survives exec, so the process keeps the id that Popen knows. Doing this in Python code
# of the child spares a preexec_fn, which is not safe beside threads.
_TIE_TO_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent ended before its child began")
os.execv(sys.argv[2], sys.argv[2:])
"""

# To the kernel the parent is the thread that forked: this one lives as long as the process does.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="java-starter")

_FLAGS = (
    "-XX:-UsePerfData",  # no files in the system's temporary folder
    # What RocketMQ's own scripts give a JDK newer than 8: its mapped files reach into the JDK.
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)

# 4.9.4 logs with logback, 5.5.0 with a renamed copy of it.
_LOGBACK = """<configuration>
  <statusListener class="{package}.core.status.NopStatusListener"/>
  <appender name="out" class="{package}.core.ConsoleAppender">
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{0}} %msg%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="out"/></root>
</configuration>
"""


def launch(
    command: list[str],
    folder: Path,
    output: IO[bytes],
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a folder. It gets no Ctrl-C of the terminal and dies with this Python."""
    tie = [sys.executable, "-I", "-S", "-c", _TIE_TO_PARENT, str(os.getpid())]
    return _starter.submit(
        subprocess.Popen,
        [*tie, *command],
        cwd=folder,
        env={**os.environ, "ROCKETMQ_HOME": str(folder), **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ).result()


def java_command(
    version: str, folder: Path, *, log_level: str, full_speed: bool = False
) -> list[str]:
    """The start of a command that runs a class of this release, which then writes only to `folder`.

    Its logs of that level and above go to its standard output. Without `full_speed` Java starts
    a third sooner and never compiles its best: for tests, not for measurements.
    """
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    is_renamed = not version.startswith("4.")
    package = "org.apache.rocketmq.logging.ch.qos.logback" if is_renamed else "ch.qos.logback"
    # 4.x finds these in ROCKETMQ_HOME; 5.x is told with a property.
    for role in ("namesrv", "broker", "tools"):
        (conf / f"logback_{role}.xml").write_text(_LOGBACK.format(package=package, level=log_level))
    return [
        find_java(),
        *_FLAGS,
        *(() if full_speed else ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")),
        f"-Duser.home={folder}",
        f"-Djava.io.tmpdir={folder}",
        f"-Drmq.logback.configurationFile={conf / 'logback_tools.xml'}",
        "-cp",
        f"{jars(version)}/*",
    ]
