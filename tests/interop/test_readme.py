"""The README's examples do what they say."""

import re
import subprocess
import sys
from pathlib import Path

from tests.interop.clusters import Cluster

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_send_and_consume_their_messages(cluster: Cluster) -> None:
    # The others bring a cluster of their own, or are run by Spark: tests/docs and tests/spark.
    examples = [
        example
        for example in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
        if "127.0.0.1:9876" in example and "spark." not in example
    ]
    for example, printed in zip(examples, ["SEND_OK", "SEND_OK", " b'"], strict=True):
        finished = subprocess.run(
            [sys.executable, "-c", example.replace("127.0.0.1:9876", cluster.namesrv)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert finished.returncode == 0, finished.stderr
        assert printed in finished.stdout
        assert finished.stderr == ""
