"""Queues are shared as Java's own strategies share them, asked on the spot."""

from rocketpipe import MessageQueue, by_machine_room
from rocketpipe.client.allocation import ALLOCATIONS
from rocketpipe.wire.allocation import Allocation
from tests.apache.programs import java_program
from tests.interop.clusters import JAVA

RULES: dict[str, Allocation] = {
    "AVG": ALLOCATIONS["averagely"],
    "AVG_BY_CIRCLE": ALLOCATIONS["circle"],
    "CONSISTENT_HASH": ALLOCATIONS["consistent-hash"],
    "MACHINE_ROOM": by_machine_room({"north", "south"}),
}


def test_every_rule_gives_what_java_gives(apache_version: str) -> None:
    finished = java_program(apache_version, JAVA / "Allocate.java", timeout=120)
    lines = [line.split() for line in finished.output.splitlines() if line.startswith("share ")]
    for _, strategy, count, clients, client_id, *given in lines:
        queues = [
            MessageQueue("topic", broker, queue_id)
            for broker in ("north@a", "plain", "south@b", "west@c")
            for queue_id in range(int(count))
        ]
        client_ids = [f"10.0.0.{client}@4711#{client * 7919}" for client in range(int(clients))]
        ours = RULES[strategy](queues, client_ids, client_id)
        shown = [f"{queue.broker_name}:{queue.queue_id}" for queue in ours]
        assert shown == given, (strategy, count, clients, client_id)
    assert {line[1] for line in lines} == RULES.keys()
    assert len(lines) == 9 * 28 * len(RULES)
