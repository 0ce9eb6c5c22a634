"""The README's example does what it says."""

import re
import subprocess
import sys
from pathlib import Path

from tests.apache.cluster import ApacheCluster

README = Path(__file__).parents[2] / "README.md"


def test_the_example_prints_the_brokers(apache: ApacheCluster) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "127.0.0.1:9876" in example
    finished = subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:9876", apache.namesrv)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    assert "broker-a" in finished.stdout
    assert "broker-b" in finished.stdout
