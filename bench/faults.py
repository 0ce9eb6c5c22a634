"""How each policy fares while a server of a cluster is hurt: a table for every fault.

`python bench/faults.py 4.9.4` for another release than 5.5.0.
"""

import asyncio
import os
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.apache.cluster import ApacheCluster
from tests.interop.fault_load import FAULTS, PAUSE, SENDERS, run_fault


def main() -> None:
    version = sys.argv[1] if len(sys.argv) > 1 else "5.5.0"
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"Apache RocketMQ {version}, two brokers; every policy with {SENDERS} senders, each of")
    print(f"which sends again {PAUSE:g} s after its last answer. Retries stay within 3 s.")
    with ApacheCluster(version, settings={"autoCreateTopicEnable": "true"}) as cluster:
        for fault in FAULTS.values():
            run = asyncio.run(run_fault(cluster, fault))
            print(f"\n{fault.__doc__}\n\n{run.table()}")
            print(f"\nLost: {len(run.lost)}. A bystander waited {1000 * run.stall:.0f} ms at most.")
            for failure in run.failures():
                print(f"- {failure}")


if __name__ == "__main__":
    main()
