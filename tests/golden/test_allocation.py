"""How a group shares queues, as Apache's Java code does it."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.message import MessageQueue
from rocketpipe.wire.allocation import allocate_averagely, allocate_by_circle

CASES = json.loads(Path(__file__).with_name("allocation.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['queues']}-{case['clients']}")
@pytest.mark.parametrize(
    ("rule", "name"), [(allocate_averagely, "AVG"), (allocate_by_circle, "AVG_BY_CIRCLE")]
)
def test_every_member_gets_the_queues_java_gives_it(
    rule: Any, name: str, case: dict[str, Any]
) -> None:
    queues = [MessageQueue("t", "b", number) for number in range(case["queues"])]
    client_ids = sorted(case[name])
    for client_id, numbers in case[name].items():
        allocated = rule(queues, client_ids, client_id)
        assert [queue.queue_id for queue in allocated] == numbers
