"""The demo on real Apache RocketMQ 5.5.0: two brokers, one of which is killed, the other frozen.

Options are those of `rocketpipe demo`.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rocketpipe.cli.demo import run
from rocketpipe.cli.program import execute, parser
from rocketpipe.demo.troubles import Servers
from tests.apache.cluster import ApacheCluster, StartFailed
from tests.apache.jars import Unavailable


def demo() -> int:
    print("starting Apache RocketMQ 5.5.0 (the first time, Maven fetches it) ...", file=sys.stderr)
    try:
        # What is acknowledged survives the death of its broker: so it has to be on disk before.
        with ApacheCluster("5.5.0", settings={"flushDiskType": "SYNC_FLUSH"}) as cluster:
            arguments = ["demo", "--scenario", "hard", "--namesrv", cluster.namesrv, *sys.argv[1:]]
            args = parser("demo").parse_args(arguments)
            args.run = partial(run, sufferer=Servers(cluster.broker))
            return execute(args)
    except (Unavailable, StartFailed) as error:
        print(f"rocketpipe: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(demo())
