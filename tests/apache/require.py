"""Skips a test where Apache RocketMQ can't run; in CI that is a failure, not a skip."""

import os

import pytest

from tests.apache.jars import Unavailable, find_java, jars


def require(version: str) -> None:
    """Returns when there are a Java and the jars of this release."""
    try:
        find_java()
        jars(version)
    except Unavailable as error:
        reason = f"no Apache RocketMQ {version} here: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
