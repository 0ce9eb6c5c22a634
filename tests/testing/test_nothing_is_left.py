"""After an embedded cluster nothing is left of it. No other cluster may run meanwhile."""

import gc
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from rocketpipe import Message, Producer
from rocketpipe.errors import InvalidSetting
from rocketpipe.testing import EmbeddedCluster

pytestmark = pytest.mark.slow


def open_descriptors() -> list[str]:
    """What the open descriptors of this process stand for; sockets have numbers of their own."""
    opened = list(Path("/proc/self/fd").iterdir())  # one of them is that of the listing itself
    return sorted(str(each.readlink()) for each in opened if each.is_symlink())


def test_nothing_is_left_of_it() -> None:
    files = set(Path(tempfile.gettempdir()).glob("rocketpipe-cluster-*"))
    gc.collect()  # what other tests have left behind must not end meanwhile
    descriptors = open_descriptors()
    threads = threading.active_count()
    with (
        EmbeddedCluster(slaves=1) as cluster,
        Producer("embedded", namesrv=cluster.namesrv, send_timeout=20.0) as producer,
    ):
        producer.send(Message("orders", b"x"))
        cluster.broker("broker-a", 1).kill()
        cluster.broker("broker-a").freeze()
        assert threading.active_count() > threads
    cluster.close()  # twice is no error
    assert threading.active_count() == threads
    gc.collect()
    assert open_descriptors() == descriptors
    assert set(Path(tempfile.gettempdir()).glob("rocketpipe-cluster-*")) <= files


def test_a_port_that_is_taken_leaves_nothing_either() -> None:
    threads = threading.active_count()
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(InvalidSetting, match="cannot listen"):
        EmbeddedCluster(port=taken.getsockname()[1]).start()
    assert threading.active_count() == threads
