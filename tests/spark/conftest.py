"""One Spark for all tests of this folder, fast and quiet."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketpipe.spark.jobs.session import ARROW_ENVIRONMENT
from tests.apache.jars import Unavailable, find_java


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)


def require_java() -> None:
    """Returns when there is a Java; Spark's own message would be a riddle."""
    try:
        find_java()
    except Unavailable as error:
        reason = f"no Spark here: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What makes a local Spark quiet and quick, for sessions of this process and of others."""
    require_java()
    folder = tmp_path_factory.mktemp("spark")
    # Workers are started by name, and would be the first Python on the path.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.update(ARROW_ENVIRONMENT)  # as our jobs and our docs have it
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",  # each failure that a test wants would be told several times
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@pytest.fixture(scope="session")
def spark(spark_settings: dict[str, str]) -> Iterator[SparkSession]:
    """A local session of two threads."""
    builder = SparkSession.builder.master("local[2]").appName("rocketpipe tests")
    for name, value in spark_settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
