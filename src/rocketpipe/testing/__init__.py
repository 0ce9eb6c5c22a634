"""For the tests of those who use rocketpipe, and our own.

A whole cluster in this process, with faults at will; and simulated time, network and disk.
"""

from rocketpipe.broker.faults import Fault, FaultControl, FaultKind, Faults
from rocketpipe.testing.broker_faults import BrokerFaults
from rocketpipe.testing.embedded_cluster import (
    AsyncEmbeddedCluster,
    AsyncEmbeddedServer,
    EmbeddedBroker,
    EmbeddedCluster,
    EmbeddedNameServer,
    EmbeddedServer,
)

__all__ = [
    "AsyncEmbeddedCluster",
    "AsyncEmbeddedServer",
    "BrokerFaults",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "EmbeddedNameServer",
    "EmbeddedServer",
    "Fault",
    "FaultControl",
    "FaultKind",
    "Faults",
]
