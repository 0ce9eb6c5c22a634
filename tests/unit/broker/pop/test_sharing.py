"""Which queues a consumer reads that asks a broker, and whether it pulls or pops."""

from dataclasses import replace

import pytest

from rocketpipe.broker.pop.sharing import share_queues
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.allocation import allocate_averagely
from rocketpipe.wire.bodies.groups import (
    GroupRequestMode,
    MessageRequestMode,
    QueryAssignmentAnswer,
    QueryAssignmentRequest,
)
from rocketpipe.wire.bodies.heartbeat import MessageModel
from rocketpipe.wire.bodies.route import Perm, QueueData, TopicRouteData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.clients import QueryAssignment, SetMessageRequestMode
from tests.unit.broker.bench import Bench, simulated
from tests.unit.broker.reading import ask, create_topic, join

POP, PULL = MessageRequestMode.POP, MessageRequestMode.PULL
QUEUES = [
    MessageQueue("orders", broker, n) for broker in ("broker-a", "broker-b") for n in range(2)
]
A0, A1, B0, B1 = QUEUES
ANY_A, ANY_B = (replace(queue, queue_id=-1) for queue in (A0, B0))


@pytest.mark.parametrize(
    ("mode", "shared", "members", "mine"),
    [
        (PULL, 0, "me you", [A0, A1]),
        (POP, 0, "me you", [ANY_A, ANY_B]),
        (POP, -1, "me you", [ANY_A, ANY_B]),
        (POP, 8, "me you", [ANY_A, ANY_B]),
        (POP, 1, "me us we you", [A0, A1]),
        (POP, 2, "me us we you", [A0, A1, B0]),
        (POP, 1, "a b c d me", [A0]),  # more members than queues: one each, over and over
        (POP, 1, "a b c", []),
    ],
)
def test_members_share_queues(
    mode: MessageRequestMode, shared: int, members: str, mine: list[MessageQueue]
) -> None:
    setting = GroupRequestMode(
        topic="orders", consumer_group="g", mode=mode, pop_share_queue_num=shared
    )
    assert share_queues(allocate_averagely, setting, QUEUES, members.split(), "me") == mine


def tell_route(bench: Bench) -> list[str]:
    """Let the NameServer know two brokers; the topics it is asked for are noted."""
    asked = []

    def route(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields["topic"]
        asked.append(topic)
        if topic != "orders":
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, "no")
        queues = tuple(
            QueueData(
                broker_name=name,
                read_queue_nums=2,
                write_queue_nums=2,
                perm=Perm.READ if name < "broker-c" else Perm.WRITE,
            )
            for name in ("broker-b", "broker-a", "broker-c")
        )
        return request.answer(0, body=TopicRouteData(queue_datas=queues).encode(standard=True))

    bench.nameserver.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
    return asked


async def assigned(client: Connection, **changes: object) -> QueryAssignmentAnswer:
    fields: dict[str, object] = {
        "topic": "orders",
        "consumer_group": "readers",
        "client_id": "me",
        "strategy_name": "AVG",
    }
    request = QueryAssignmentRequest(**(fields | changes))  # type: ignore[arg-type]
    return await client.request(QueryAssignment(), request.encode(), timeout=10)


@simulated
async def test_a_consumer_is_told_its_queues_and_how_to_read_them(bench: Bench) -> None:
    asked = tell_route(bench)
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await join(client, client_id="me")

        def queues(answer: QueryAssignmentAnswer) -> dict[MessageQueue, MessageRequestMode]:
            given = answer.message_queue_assignments or ()
            return {each.message_queue: each.mode for each in given}

        assert queues(await assigned(client)) == dict.fromkeys(QUEUES, PULL)
        mode = GroupRequestMode(topic="orders", consumer_group="readers", mode=POP)
        assert (await ask(client, SetMessageRequestMode(), mode.encode())).code == 0
        assert queues(await assigned(client)) == dict.fromkeys([ANY_A, ANY_B], POP)
        assert asked == ["orders"]  # once for a while
        broadcasting = await assigned(client, message_model=MessageModel.BROADCASTING)
        assert queues(broadcasting).keys() == set(QUEUES)
        for unknown in (
            {"topic": "nowhere"},
            {"consumer_group": "nobody"},
            {"strategy_name": "MINE"},
        ):
            assert (await assigned(client, **unknown)).message_queue_assignments is None
        assert (await assigned(client, client_id="you")).message_queue_assignments == ()
        broker.settings.change({"serverLoadBalancerEnable": "false"})
        assert queues(await assigned(client, client_id="you")).keys() == set(QUEUES)
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await join(client, client_id="me")
        assert queues(await assigned(client)) == dict.fromkeys([ANY_A, ANY_B], POP)


@simulated
async def test_all_groups_may_pop_by_default(bench: Bench) -> None:
    tell_route(bench)
    settings = {"default_message_request_mode": POP, "default_pop_share_queue_num": 0}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await create_topic(client)
        assert broker.pop.modes.get("orders", "readers").mode is POP
        assert broker.pop.modes.get("%RETRY%readers", "readers").mode is PULL


@simulated
async def test_a_mode_that_can_not_be_set_is_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        for topic, group, code in (
            ("%RETRY%readers", "readers", ResponseCode.NO_PERMISSION),
            ("nowhere", "readers", ResponseCode.TOPIC_NOT_EXIST),
            ("orders", "?", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ):
            mode = GroupRequestMode(topic=topic, consumer_group=group, mode=POP)
            assert (await ask(client, SetMessageRequestMode(), mode.encode())).code == code
