"""A cluster for tests and for small use: a NameServer and brokers, on threads or in processes.

with EmbeddedCluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
    producer.send(Message("orders", b"..."))
    with cluster.broker("broker-b").frozen():
        producer.send(Message("orders", b"..."))
"""

import atexit
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self

from rocketpipe.broker.faults import DOWN, FaultControl
from rocketpipe.errors import ClientError, IllegalState
from rocketpipe.testing.cluster_settings import ClusterSettings
from rocketpipe.testing.embedded_servers import ServerPlan
from rocketpipe.testing.process_runner import ProcessRunner
from rocketpipe.testing.thread_runner import ThreadRunner

log = logging.getLogger(__name__)


class ServerRunner(Protocol):
    """Where a server runs, and how it is brought up, down and to a halt there."""

    @property
    def plan(self) -> ServerPlan: ...  # with the real ports, from the first start on
    @property
    def is_running(self) -> bool: ...
    @property
    def is_frozen(self) -> bool: ...
    @property
    def faults(self) -> FaultControl: ...  # a broker's; so are the next but last two
    def start_nowait(self) -> "Future[None]": ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def register(self) -> None: ...
    def cut_connections(self) -> None: ...
    def abandon(self) -> None: ...  # we are in a forked child, and the server is the parent's


class EmbeddedServer:
    """A NameServer or broker that may be stopped, killed, frozen, and brought back."""

    def __init__(self, runner: ServerRunner) -> None:
        self._runner = runner
        _runners.add(runner)

    def __repr__(self) -> str:
        state = "frozen" if self.is_frozen else "running" if self.is_running else "down"
        return f"<{type(self).__name__} {self.name} at {self.address}, {state}>"

    @property
    def name(self) -> str:
        """`broker-a`, or `namesrv`."""
        return self._runner.plan.name

    @property
    def address(self) -> str:
        """`host:port`; the port is known, and its own, from the first start on."""
        return self._runner.plan.address

    @property
    def is_running(self) -> bool:
        return self._runner.is_running

    @property
    def is_frozen(self) -> bool:
        return self._runner.is_frozen

    @property
    def process_id(self) -> int | None:
        """Of its own process; None if it has none, or is down."""
        return self._runner.process_id if isinstance(self._runner, ProcessRunner) else None

    def start(self) -> None:
        """Come up, as it was before: same port, same data. One that runs goes on."""
        starting = self.start_nowait()
        try:
            starting.result()
        except BaseException:
            self._runner.kill()
            raise

    def start_nowait(self) -> "Future[None]":
        """A future that is done when it is up."""
        return self._runner.start_nowait()

    def stop(self) -> None:
        """End in order; a frozen one is thawed first."""
        self._runner.stop()

    def kill(self) -> None:
        """End as a crash would: nobody is told, and what was not written is lost."""
        self._runner.kill()

    def freeze(self) -> None:
        """Stand still: connections stay open, and nobody answers."""
        if not self.is_running:
            raise IllegalState(f"{self.name} is down: it can't be frozen")
        self._runner.freeze()

    def thaw(self) -> None:
        """Go on, with what came in meanwhile; no matter if it was not frozen."""
        self._runner.thaw()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen until the `with` is left."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()


class EmbeddedBroker(EmbeddedServer):
    """A broker; its `faults` make it misbehave, and outlive a restart."""

    @property
    def id(self) -> int:
        """0 is the master's."""
        return self._runner.plan.id

    @property
    def faults(self) -> FaultControl:
        return self._runner.faults

    def start(self) -> None:
        """Come up, as it was before. If a fault keeps it down, that is over then."""
        if not self.is_running:
            for fault in self.faults.active():
                if fault.kind in DOWN:
                    self.faults.clear(fault)
        super().start()

    def cut_connections(self) -> None:
        """Cut all that are open; whoever lost his may come back at once."""
        self._runner.cut_connections()

    def register(self) -> None:
        """Returns when the NameServer knows this broker and its topics."""
        self._runner.register()


class EmbeddedNameServer(EmbeddedServer):
    """The NameServer of a cluster."""

    def __init__(self, runner: ServerRunner, brokers: Sequence[EmbeddedBroker]) -> None:
        super().__init__(runner)
        self._brokers = brokers
        if isinstance(runner, ProcessRunner):
            runner.on_back = self._register_brokers

    def start(self) -> None:
        """Come up on the same port; it knows every broker that runs then."""
        super().start()
        self._register_brokers()

    def _register_brokers(self) -> None:
        for broker in self._brokers:
            if not broker.is_frozen:
                broker.register()


class EmbeddedCluster:
    """A NameServer and `brokers` brokers, each with so many slaves.

    `brokers` is a number (broker-a, broker-b, ...), or their names; `slaves` how many each of them
    has, or how many which of them: `{"broker-a": 1}`. With `processes` each server has a process of
    its own, which ends with this one at the latest. With `join` there is no NameServer, and the
    brokers register with those at `host:port;...`.

    With a folder its data is kept there, else it is gone at the end. `settings` are the brokers',
    by RocketMQ's own names: `{"flushDiskType": "SYNC_FLUSH"}`; those that begin with `namesrv.` are
    the NameServer's, and with `tls.` those of all servers. Port 0 is any that is free; the brokers
    after the first have ports ten higher each.
    """

    version = "5.5.0"  # the release that it behaves like
    restarts_lost = False  # whether to start a process again that ended by itself

    def __init__(
        self,
        brokers: int | Sequence[str] = 1,
        *,
        slaves: int | Mapping[str, int] = 0,
        processes: bool = False,
        join: str | None = None,
        folder: Path | str | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        cluster_name: str = "DefaultCluster",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._settings = ClusterSettings(
            brokers=brokers,
            slaves=slaves,
            join=join,
            host=host,
            namesrv_port=namesrv_port,
            port=port,
            cluster_name=cluster_name,
            settings={"faultsEnable": True, **(settings or {})},
        )
        self._settings.check()
        self._processes = processes
        self._folder = folder
        self._process_id = os.getpid()
        self._own_folder: Path | None = None
        self._nameserver: EmbeddedNameServer | None = None
        self._brokers: list[EmbeddedBroker] = []

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return self._settings.join or self.nameserver.address

    @property
    def nameserver(self) -> EmbeddedNameServer:
        if self._nameserver is not None:
            return self._nameserver
        if self._settings.join is not None:
            raise IllegalState(f"the NameServer is not ours, but at {self._settings.join}")
        raise IllegalState("the cluster is not started: use it in a `with`")

    @property
    def brokers(self) -> list[EmbeddedBroker]:
        """All of them, masters first."""
        return list(self._brokers)

    @property
    def servers(self) -> list[EmbeddedServer]:
        """The NameServer, if it is ours, and the brokers."""
        return [*([] if self._nameserver is None else [self._nameserver]), *self._brokers]

    def broker(self, name: str, id: int = 0) -> EmbeddedBroker:
        """The master of that name; or, with an id, a slave of it."""
        for broker in self._brokers:
            if (broker.name, broker.id) == (name, id):
                return broker
        known = ", ".join(broker.name for broker in self._brokers if broker.id == 0)
        raise ClientError(f"there is no {name} with id {id} here, but {known or 'none'}")

    def start(self) -> None:
        """Bring all servers up; the NameServer knows all brokers then."""
        if self._own_folder is not None:
            raise IllegalState("this cluster was started before")
        if ignored := self._settings.without_effect():
            log.warning("settings without effect here: %s", ", ".join(ignored))
        self._own_folder = Path(tempfile.mkdtemp(prefix="rocketpipe-cluster-"))
        atexit.register(self.close)
        folder = self._own_folder if self._folder is None else Path(self._folder)
        try:
            if (plan := self._settings.nameserver_plan(folder)) is not None:
                self._nameserver = EmbeddedNameServer(self._runner(plan), self._brokers)
                self._nameserver.start()
            for plan in self._settings.broker_plans(folder, self.namesrv):
                file = self._own_folder / f"{plan.name}-{plan.id}.faults"
                plan = replace(plan, faults_file=str(file) if self._processes else None)
                self._brokers.append(EmbeddedBroker(self._runner(plan)))
            self._start_brokers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all servers; with no folder given, their data goes too. Twice is no error."""
        atexit.unregister(self.close)
        if os.getpid() != self._process_id:
            return  # a forked child: servers and data are the parent's
        with ExitStack() as stack:  # all of it, whatever fails; the last first
            if self._own_folder is not None:
                stack.callback(shutil.rmtree, self._own_folder, ignore_errors=True)
            for server in self.servers:
                stack.callback(server.stop)

    def heal(self) -> None:
        """Thaw what is frozen, start what is down, clear all faults; all is well then."""
        for server in self.servers:
            server.thaw()
        for broker in self._brokers:
            broker.faults.clear()
        self._start_brokers()
        if self._nameserver is not None:
            self._nameserver.start()

    def _runner(self, plan: ServerPlan) -> ServerRunner:
        if self._processes:
            return ProcessRunner(plan, restarts=self.restarts_lost)
        return ThreadRunner(plan)

    def _start_brokers(self) -> None:
        # Masters before slaves, which ask the NameServer for their master.
        for is_slave in (False, True):
            starting = [
                broker.start_nowait() for broker in self._brokers if (broker.id > 0) == is_slave
            ]
            for future in starting:
                future.result()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_runners: "weakref.WeakSet[ServerRunner]" = weakref.WeakSet()


def _after_fork() -> None:
    for runner in list(_runners):
        runner.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
