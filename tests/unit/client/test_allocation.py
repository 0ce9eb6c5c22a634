"""How a group shares queues; that Java shares them so is proven in `golden` and `interop`."""

import pytest

from rocketpipe.client.allocation import ALLOCATIONS, allocation_rule, by_config
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(12)]
CLIENTS = [f"client-{number}" for number in range(5)]


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_every_queue_has_exactly_one_reader(name: str) -> None:
    rule = allocation_rule(name)
    shares = [rule(QUEUES, CLIENTS, client) for client in CLIENTS]
    assert sorted(queue for share in shares for queue in share) == QUEUES


def test_by_config_gives_what_was_configured_and_exists() -> None:
    rule = by_config([QUEUES[3], QUEUES[1], MessageQueue("t", "gone", 0)])
    assert rule(QUEUES, CLIENTS, CLIENTS[0]) == rule(QUEUES, CLIENTS, "x") == [QUEUES[1], QUEUES[3]]


def test_by_config_leaves_no_retry_unread() -> None:
    retries = [MessageQueue("%RETRY%group", "b", number) for number in range(3)]
    rule = by_config([QUEUES[3]])
    shares = [rule(retries, CLIENTS[:2], client) for client in CLIENTS[:2]]
    assert shares == [retries[:2], retries[2:]]
    rule = by_config([QUEUES[3], retries[1]])  # it says who reads them
    assert rule(retries, CLIENTS[:2], CLIENTS[0]) == [retries[1]]


def test_a_rule_of_ones_own_is_taken_and_an_unknown_name_is_not() -> None:
    rule = by_config([])
    assert allocation_rule(rule) is rule
    for unknown in ("AVG", 5, None):
        with pytest.raises(InvalidSetting, match="averagely, circle, consistent-hash exist"):
            allocation_rule(unknown)
