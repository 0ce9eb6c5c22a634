"""The public names of `rocketpipe.testing`, each from where it lives."""

from rocketpipe.broker.faults import Fault, FaultControl, FaultKind, Faults
from rocketpipe.testing.async_embedded_cluster import AsyncEmbeddedCluster, AsyncEmbeddedServer
from rocketpipe.testing.broker_faults import BrokerFaults
from rocketpipe.testing.embedded_cluster import (
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
