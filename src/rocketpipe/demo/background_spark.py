"""A Spark session that starts while other things do, and ends with its Java process."""

import subprocess
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from rocketpipe.spark.jobs.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_SECONDS_MAX = 10.0


class BackgroundSpark:
    """`start` at once, `get` when it is needed, and in the end `close`."""

    def __init__(self, name: str, *, master: str, conf: Mapping[str, str]) -> None:
        self._name, self._master, self._conf = name, master, conf
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rocketpipe-demo-spark")
        self._session: Future[SparkSession] | None = None

    def start(self) -> None:
        # In a thread of its own: in the main one Spark would take Ctrl-C for itself.
        self._session = self._thread.submit(
            spark_session, self._name, master=self._master, conf=self._conf
        )

    def get(self) -> "SparkSession":
        """The session; JobError if there is none."""
        assert self._session is not None
        return self._session.result()

    def close(self) -> None:
        """End the session and its Java, which otherwise would go on until our process ends."""
        self._thread.shutdown(wait=True)
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        if self._session is not None and self._session.exception() is None:
            try:
                self._session.result().stop()
            except Exception:
                pass  # its Java is gone already
        if gateway is None:
            return
        process: subprocess.Popen[bytes] = gateway.proc
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        if process.stdin is not None:
            process.stdin.close()  # for which it waits
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
