"""Jobs run in the one Spark of all tests; their commands in processes of their own."""

from pathlib import Path

import pytest

from tests.cli.conftest import Program
from tests.interop.clusters import Cluster
from tests.spark.conftest import spark, spark_settings

__all__ = ["spark", "spark_settings"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def program(embedded_cluster: Cluster) -> Program:
    """`rocketpipe(...)` on the embedded cluster."""
    return Program(embedded_cluster.namesrv)
