"""A real Apache RocketMQ cluster for tests: a NameServer and brokers that may be hurt at will.

    with ApacheCluster("5.5.0") as cluster:
        send_to(cluster.namesrv)
        with cluster.broker("broker-b").frozen():
            send_to(cluster.namesrv)

Each server is a Java process with files in a temporary folder and ports that stay its own until the
cluster is closed. They listen on 127.0.0.1 only, save where Apache can't be told: the replication
port (listenPort + 1), and every port of 4.9.4, which has no `bindAddress`.
"""

import atexit
import json
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.apache.launch import java_command, launch

_START_SECONDS_MAX = 180.0  # a few seconds, unless the machine is very busy
_STOP_SECONDS_MAX = 60.0  # 5.5.0 takes 15 s to stop, 4.9.4 takes 4 s
_PORT_TRIES_MAX = 5
_ANSWER_SECONDS_MAX = 3.0

_UPDATE_BROKER_CONFIG = 25
_GET_BROKER_RUNTIME_INFO = 28
_GET_BROKER_CLUSTER_INFO = 106

_BROKER_SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",  # where slaves are told to find the replication port
    "bindAddress": "127.0.0.1",
    # Small files: by default the first message reserves gigabytes.
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 30_000),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    "registerNameServerPeriod": "10000",  # ms, the least: a restarted NameServer waits for this
    # 5.5.0 keeps a processor busy until this has passed once, 10 s by default: the loop of its
    # TransactionMetricsFlushService waits only after it has written.
    "transactionMetricFlushInterval": "200",
    # 5.5.0 copies its whole timer wheel this often, a quarter of a processor at the default 1 s.
    "timerFlushIntervalMs": "60000",
}


class StartFailed(Exception):
    """A server did not come up; the text holds the end of its log."""


@dataclass(frozen=True)
class BrokerSpec:
    """A broker to start. A slave has its master's name, an id above 0 and `brokerRole` SLAVE."""

    name: str
    id: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


class ApacheCluster:
    """A running NameServer and its brokers.

    `brokers` is a number (`broker-a`, `broker-b`, ...) or a spec for each. Settings go by
    RocketMQ's own names: `settings` to all brokers, `broker_settings` to those of one name.
    `jvm_properties` go to every server as `-Dname=value`. When these make the servers insist on
    TLS, `tls` is the context with which the cluster asks them whether they are up. With `namesrv`
    the brokers register with a NameServer that runs already, and no other is started. `full_speed`
    is for measurements: see `java_command`.
    """

    def __init__(
        self,
        version: str,
        brokers: int | Sequence[BrokerSpec] = 2,
        *,
        settings: Mapping[str, str] | None = None,
        broker_settings: Mapping[str, Mapping[str, str]] | None = None,
        jvm_properties: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        namesrv: str | None = None,
        full_speed: bool = False,
    ) -> None:
        if isinstance(brokers, int):
            brokers = [BrokerSpec(f"broker-{chr(ord('a') + i)}") for i in range(brokers)]
        self.version = version
        self.settings = settings or {}
        self.broker_settings = broker_settings or {}
        self.jvm_properties = jvm_properties or {}
        self.tls = tls
        self.full_speed = full_speed
        self.folder = Path(tempfile.mkdtemp(prefix="rocketpipe-apache-"))
        atexit.register(self.close)
        self.nameserver = NameServer(self) if namesrv is None else OtherNameServer(self, namesrv)
        self.brokers: list[Broker] = []
        try:
            self.nameserver.start()
            self.brokers = [Broker(self, spec) for spec in brokers]
            for broker in self.brokers:
                broker.start_nowait()
            for broker in self.brokers:
                broker.wait_ready()
        except BaseException:
            self.close()
            raise

    @property
    def namesrv(self) -> str:
        """The address clients are given."""
        return self.nameserver.address

    def broker(self, name: str, id: int = 0) -> "Broker":
        return next(b for b in self.brokers if (b.name, b.id) == (name, id))

    def heal(self) -> None:
        """Thaw and start whatever a test left frozen or dead; return when all are up."""
        servers: list[Server] = [self.nameserver, *self.brokers]
        for server in servers:
            server.thaw()
        for server in servers:
            if not server.is_running:
                server.start_nowait()
        for server in servers:
            server.wait_ready()

    def close(self) -> None:
        """Kill every server and remove their files."""
        for server in [*self.brokers, self.nameserver]:
            server.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Server:
    """A Java process that can be started, stopped, killed and frozen; its ports and files stay."""

    main_class: str
    heap_max: str

    def __init__(self, cluster: ApacheCluster, name: str, folder: str) -> None:
        self.cluster = cluster
        self.name = name
        self.folder = cluster.folder / folder
        self.folder.mkdir()
        self.log = self.folder / "server.log"
        self.log.touch()
        self._ports = _Ports()
        self._process: subprocess.Popen[bytes] | None = None
        self._was_ready = False
        self.is_frozen = False

    @property
    def port(self) -> int:
        return self._ports.listen

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there, be it frozen."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start with the ports and files of last time; return when clients can use it."""
        self.start_nowait()
        self.wait_ready()

    def start_nowait(self) -> None:
        assert not self.is_running, f"{self.name} runs already"
        settings = self.folder / "server.conf"
        settings.write_text("".join(f"{k}={v}\n" for k, v in self.server_settings().items()))
        # By default every server makes itself a certificate, which takes it two seconds.
        properties = {"tls.server.mode": "disabled"}
        if any(name.startswith("tls.") for name in self.cluster.jvm_properties):
            properties = {}
        properties |= self.cluster.jvm_properties
        command = [
            *java_command(
                self.cluster.version,
                self.folder,
                log_level="INFO",
                full_speed=self.cluster.full_speed,
            ),
            *(f"-D{name}={value}" for name, value in properties.items()),
            f"-Xmx{self.heap_max}",
            "-XX:MaxDirectMemorySize=512m",
            f"org.apache.rocketmq.{self.main_class}",
            "-c",
            str(settings),
        ]
        with self.log.open("ab") as log:
            self._process = launch(command, self.folder, log)

    def wait_ready(self) -> None:
        begin = time.monotonic()
        seconds_urged = 0.0
        port_tries = 1
        while not self.is_ready():
            seconds = time.monotonic() - begin
            if seconds > seconds_urged + 1:
                seconds_urged = seconds
                self.urge()
            if not self.is_running:
                if not self._lost_its_port() or port_tries == _PORT_TRIES_MAX:
                    raise StartFailed(f"{self.name} ended; end of its log:\n{self.log_end()}")
                port_tries += 1
                self._ports.close()
                self._ports = _Ports()
                self.start_nowait()
            if seconds > _START_SECONDS_MAX:
                raise StartFailed(
                    f"{self.name} is not ready after {_START_SECONDS_MAX:.0f} s; "
                    f"end of its log:\n{self.log_end()}"
                )
            time.sleep(0.1)
        self._was_ready = True

    def is_ready(self) -> bool:
        """Whether clients can use it."""
        raise NotImplementedError

    def urge(self) -> None:
        """Do what makes it ready sooner."""
        raise NotImplementedError

    def server_settings(self) -> dict[str, str]:
        """The settings of its own file."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it the proper way (SIGTERM)."""
        self.thaw()
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), frozen or not."""
        self._end(signal.SIGKILL)
        self.is_frozen = False

    def freeze(self) -> None:
        """Halt it (SIGSTOP): connections stay open, and nothing is answered."""
        self._send(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let a frozen one go on (SIGCONT)."""
        self._send(signal.SIGCONT)
        self.is_frozen = False

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def close(self) -> None:
        """Kill it and give its ports back."""
        self.kill()
        self._ports.close()

    def log_end(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing to one that has ended

    def _end(self, number: signal.Signals) -> None:
        self._send(number)
        if self._process is not None:
            self._process.wait(_STOP_SECONDS_MAX)

    def _lost_its_port(self) -> bool:
        # One that was up before has told its address to others: it can't move.
        return not self._was_ready and "Address already in use" in self.log_end(200)


class NameServer(Server):
    """The NameServer of a cluster; ready when it knows all brokers that could have registered."""

    main_class = "namesrv.NamesrvStartup"
    heap_max = "192m"

    def __init__(self, cluster: ApacheCluster) -> None:
        super().__init__(cluster, "nameserver", "nameserver")

    def server_settings(self) -> dict[str, str]:
        return {
            "listenPort": str(self.port),
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(self.folder / "kv.json"),
            "configStorePath": str(self.folder / "namesrv.properties"),
        }

    def is_ready(self) -> bool:
        known = self.known_brokers()
        able = [b for b in self.cluster.brokers if b.is_running and not b.is_frozen]
        return bool(known) and all(f'"{broker.address}"' in known for broker in able)

    def urge(self) -> None:
        for broker in self.cluster.brokers:
            if broker.is_running and not broker.is_frozen:
                broker.urge()

    def known_brokers(self) -> str:
        """Its answer to who the brokers are: JSON, but for integer keys; empty when it is down."""
        return _ask(self.address, _GET_BROKER_CLUSTER_INFO, self.cluster.tls)


class OtherNameServer(NameServer):
    """A NameServer that someone else starts and stops."""

    def __init__(self, cluster: ApacheCluster, address: str) -> None:
        super().__init__(cluster)
        self._address = address

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_running(self) -> bool:
        return True

    def start_nowait(self) -> None:
        pass


class Broker(Server):
    """A broker of a cluster; ready when it answers and the NameServer knows it."""

    main_class = "broker.BrokerStartup"
    heap_max = "512m"

    def __init__(self, cluster: ApacheCluster, spec: BrokerSpec) -> None:
        super().__init__(cluster, spec.name, f"{spec.name}-{spec.id}")
        self.id = spec.id
        self._spec = spec

    def server_settings(self) -> dict[str, str]:
        return {
            **_BROKER_SETTINGS,
            "brokerName": self.name,
            "brokerId": str(self.id),
            "listenPort": str(self.port),
            "namesrvAddr": self.cluster.namesrv,
            "storePathRootDir": str(self.folder / "store"),
            "storePathCommitLog": str(self.folder / "store" / "commitlog"),
            **self.cluster.settings,
            **self.cluster.broker_settings.get(self.name, {}),
            **self._spec.settings,
        }

    def is_ready(self) -> bool:
        # Its own answer too: after a crash the NameServer may know the broker of before.
        return f'"{self.address}"' in self.cluster.nameserver.known_brokers() and bool(
            _ask(self.address, _GET_BROKER_RUNTIME_INFO, self.cluster.tls)
        )

    def urge(self) -> None:
        # 5.5.0 skips its first registration when its connection to the NameServer is a moment late
        # (NettyRemotingClient.getAvailableNameSrvList), and comes back to it after ten seconds, as
        # do all brokers to a new NameServer. Being told its permission makes a broker register now.
        permission = self.server_settings().get("brokerPermission", "6")
        body = f"brokerPermission={permission}".encode()
        _ask(self.address, _UPDATE_BROKER_CONFIG, self.cluster.tls, body)


class _Ports:
    """Four free ports in a row. A broker takes three: `listen`, two below and one above it.

    A socket on the fourth keeps other clusters away, those of other test runs too. All lie below
    the ports that systems give to outgoing connections.
    """

    def __init__(self) -> None:
        for first in random.SystemRandom().sample(range(10_000, 32_000, 4), 500):
            try:
                claim = _bound(first + 1)
            except OSError:
                continue
            try:
                for port in (first, first + 2, first + 3):
                    _bound(port).close()
            except OSError:
                claim.close()
                continue
            self._claim = claim
            self.listen = first + 2
            return
        raise OSError("found no four free ports in a row between 10000 and 32000")

    def close(self) -> None:
        self._claim.close()


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    try:
        sock.bind(("0.0.0.0", port))
    except OSError:
        sock.close()
        raise
    return sock


def _ask(address: str, code: int, tls: ssl.SSLContext | None, body: bytes = b"") -> str:
    """The answer to a request without fields, header and body as text; empty if none comes."""
    host, port = address.split(":")
    header = json.dumps({"code": code, "opaque": 1, "flag": 0, "version": 401}).encode()
    try:
        with (
            socket.create_connection((host, int(port)), _ANSWER_SECONDS_MAX) as plain,
            tls.wrap_socket(plain, server_hostname=host) if tls else plain as sock,
            sock.makefile("rb") as stream,
        ):
            length = 4 + len(header) + len(body)
            sock.sendall(struct.pack(">II", length, len(header)) + header + body)
            (length,) = struct.unpack(">I", stream.read(4))
            return stream.read(length)[4:].decode(errors="replace")
    except (OSError, struct.error):  # nobody there, nothing said in time, or cut off
        return ""
