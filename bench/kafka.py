"""A Kafka broker of one node, and the jars of Spark's own connector to it."""

import base64
import hashlib
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Self

from bench.measuring import HERE
from tests.apache.jars import cache_folder, ensure_jars, fetch_with_maven, find_java
from tests.apache.launch import launch

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0

# Kafka's own settings for one node that is broker and controller, all on loopback.
CONFIG = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def connector_jars() -> list[Path]:
    """What Spark needs to read and write Kafka."""
    return sorted(_jars("pom-spark-kafka.xml").glob("*.jar"))


class KafkaBroker:
    """A running broker; a topic that is not there yet gets so many partitions."""

    def __init__(self, partitions: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rocketpipe-kafka-"))
        port, controller_port = _free_port(), _free_port()
        self.address = f"127.0.0.1:{port}"
        config = self._folder / "server.properties"
        config.write_text(
            CONFIG.format(
                port=port,
                controller_port=controller_port,
                folder=self._folder,
                partitions=partitions,
            )
        )
        java = [find_java(), "-Xmx1g", "-cp", f"{_jars('pom-kafka.xml')}/*"]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_log = [*java, "kafka.tools.StorageTool", "format", "-c", str(config)]
        # With "=", as one id in 64 begins with a dash.
        subprocess.run(
            [*format_log, f"--cluster-id={cluster_id}"],
            check=True,
            capture_output=True,
        )
        self._log = (self._folder / "log").open("wb")
        self._process = launch([*java, "kafka.Kafka", str(config)], self._folder, self._log)
        self._wait_ready(port)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(STOP_SECONDS_MAX)
        self._log.close()
        shutil.rmtree(self._folder)

    def _wait_ready(self, port: int) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
            except OSError:
                if self._process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.2)
                    continue
                log = (self._folder / "log").read_text()[-3000:]
                self.close()
                raise RuntimeError(f"Kafka did not start:\n{log}") from None
            return


def _jars(pom: str) -> Path:
    path = HERE / pom
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return ensure_jars(path, cache_folder() / "kafka" / f"{path.stem}-{digest}", fetch_with_maven)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
