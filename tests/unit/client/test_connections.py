"""A client's connections: shared, cut when they seem dead, retired when their peer goes away."""

import asyncio
from typing import Any

import pytest

from rocketpipe.client.connections import Connections
from rocketpipe.client.settings import ClientSettings
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import (
    BrokerError,
    ConnectFailed,
    ConnectionLost,
    IllegalState,
    InvalidSetting,
    RequestTimeout,
    SendFailed,
)
from rocketpipe.message import Message, SendResult
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.dispatch import dispatch_by_code
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import TlsSettings
from rocketpipe.wire.frame import RemotingCommand, SerializeType
from rocketpipe.wire.requests.reading import GetMaxOffset
from rocketpipe.wire.signature import ACCESS_KEY, Credentials, is_signed_by
from tests.simulated_cluster import (
    FakeBroker,
    SimulatedCluster,
    after,
    ignore,
    refuse,
    simulated,
    store,
)

QUESTION = GetMaxOffset(topic="orders", queue_id=0)
MESSAGE = Message("orders", b"body")


def connections(cluster: SimulatedCluster, **settings: Any) -> tuple[Connections, list[Address]]:
    made: list[Address] = []
    return (
        Connections(
            cluster.environment,
            ClientSettings(namesrv=cluster.namesrv, **settings),
            dispatch_by_code({}),
            made.append,
        ),
        made,
    )


@simulated()
async def test_all_who_need_one_at_the_same_time_share_one(cluster: SimulatedCluster) -> None:
    address = cluster.brokers[0].address
    ours, made = connections(cluster)
    found = await asyncio.gather(*(ours.get(address, timeout=1) for _ in range(100)))
    assert len(set(found)) == 1
    assert ours.find(address) is found[0]
    assert await ours.get(address, timeout=1) is found[0]
    assert made == [address]
    assert len(cluster.dials(address)) == 1
    await ours.close()


@simulated()
async def test_who_has_little_time_does_not_end_the_dialling_for_the_others(
    cluster: SimulatedCluster,
) -> None:
    address = cluster.brokers[0].address
    ours, _ = connections(cluster)
    cluster.network.cut("client", "broker-a")
    with pytest.raises(ConnectFailed, match=r"broker-a:10911: no answer within 0\.5 s"):
        await ours.get(address, timeout=0.5)
    patient = asyncio.create_task(ours.get(address, timeout=2.0))
    await asyncio.sleep(0.5)
    cluster.network.heal("client", "broker-a")
    await patient
    assert len(cluster.dials(address)) == 1
    await ours.close()


@simulated()
async def test_an_address_that_answers_to_nobody_is_dialled_once_at_a_time(
    cluster: SimulatedCluster,
) -> None:
    address = cluster.brokers[0].address
    ours, _ = connections(cluster, request_timeout=2.0)
    cluster.network.cut("client", "broker-a")

    async def knock() -> None:
        while cluster.now < 10:
            with pytest.raises(ConnectFailed):
                await ours.get(address, timeout=0.1)

    await asyncio.gather(*(knock() for _ in range(20)))
    assert len(cluster.dials(address)) <= 6
    await ours.close()


@simulated()
async def test_a_connection_that_was_lost_is_replaced(cluster: SimulatedCluster) -> None:
    address = cluster.brokers[0].address
    ours, made = connections(cluster)
    first = await ours.get(address, timeout=1)
    cluster.network.reset("client", "broker-a")
    await asyncio.sleep(0.1)
    assert ours.find(address) is None
    second = await ours.get(address, timeout=1)
    assert second is not first
    assert made == [address, address]
    assert len(ours._living) == 1  # nor is the first kept
    await ours.close()


@simulated()
async def test_a_request_and_the_dialling_before_it_share_one_deadline(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    broker.is_deaf = True
    cluster.network.cut("client", "broker-a")
    for ask in ("request", "send_oneway"):
        ours, _ = connections(cluster)
        cluster.network.cut("client", "broker-a")
        asking = asyncio.create_task(getattr(ours, ask)(broker.address, QUESTION, timeout=2.0))
        began = cluster.now
        await asyncio.sleep(1.5)
        if ask == "request":
            cluster.network.heal("client", "broker-a")
        error = await asyncio.gather(asking, return_exceptions=True)
        assert cluster.now - began == pytest.approx(2.0, abs=0.01)
        assert isinstance(error[0], RequestTimeout | ConnectFailed)
        await ours.close()


@simulated()
async def test_what_is_left_of_the_time_is_all_that_a_oneway_request_may_wait_for_room(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    limits = RemotingSettings(requests_in_flight_max=1)
    ours, _ = connections(cluster, remoting=limits)
    broker.is_deaf = True
    cluster.network.cut("client", "broker-a")
    first = asyncio.create_task(ours.request(broker.address, QUESTION, timeout=3.0))
    second = asyncio.create_task(ours.send_oneway(broker.address, QUESTION, timeout=2.0))
    await asyncio.sleep(1.0)
    cluster.network.heal("client", "broker-a")
    with pytest.raises(Exception, match="1 requests on their way already"):
        await second
    assert cluster.now == pytest.approx(2.0, abs=0.01)
    with pytest.raises(RequestTimeout):
        await first
    await ours.close()


@simulated()
async def test_a_silent_connection_is_cut_when_an_answer_is_overdue(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    ours, _ = connections(cluster, silent_connection_timeout=2.0)
    first = await ours.get(broker.address, timeout=1)
    cluster.network.freeze("broker-a")
    for _ in range(3):  # after 0.7, 1.4 and 2.1 seconds
        assert ours.find(broker.address) is first
        with pytest.raises(RequestTimeout):
            await ours.request(broker.address, QUESTION, timeout=0.7)
    assert ours.find(broker.address) is None
    cluster.network.thaw("broker-a")
    await ours.request(broker.address, QUESTION, timeout=0.7)
    await ours.close()


@simulated()
async def test_a_slow_answer_is_no_reason_to_cut_a_connection_that_lives(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = ignore
    async with cluster.producer() as producer:
        sends = [asyncio.create_task(producer.send(MESSAGE, timeout=9.0)) for _ in range(3)]
        for _ in range(9):
            await asyncio.sleep(1)
            assert await producer._instance.is_reachable("broker-a", timeout=0.5)
        for each in await asyncio.gather(*sends, return_exceptions=True):
            assert isinstance(each, SendFailed)
        assert len(cluster.dials(broker.address)) == 1


@simulated()
async def test_an_idle_connection_is_left_alone_also_when_the_next_answer_is_late(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    ours, _ = connections(cluster, silent_connection_timeout=2.0)
    first = await ours.get(broker.address, timeout=1)
    await asyncio.sleep(60)
    assert ours.find(broker.address) is first
    cluster.network.freeze("broker-a")
    with pytest.raises(RequestTimeout):
        await ours.request(broker.address, QUESTION, timeout=0.7)
    cluster.network.thaw("broker-a")
    assert ours.find(broker.address) is first
    await ours.close()


# Going away.


@simulated()
async def test_a_broker_that_goes_away_gets_a_new_connection_and_may_answer_on_the_old(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    async with cluster.producer() as producer:
        broker.script += [after(1.0), refuse(ResponseCode.GO_AWAY, "moving"), store]
        slow = asyncio.create_task(producer.send(MESSAGE))
        await asyncio.sleep(0.1)
        result = await producer.send(MESSAGE)
        assert len(result.attempts) == 2
        assert "GO_AWAY: moving" in str(result.attempts[0])
        assert len(cluster.dials(broker.address)) == 2
        assert len((await slow).attempts) == 1
        assert len(broker.connections) == 2
        await asyncio.sleep(3)
        assert len(broker.connections) == 1


@simulated()
async def test_a_retired_connection_does_not_outlive_the_client(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    ours, _ = connections(cluster, request_timeout=60.0)
    connection = await ours.get(broker.address, timeout=1)
    ours.retire(connection)
    ours.retire(connection)
    assert ours.find(broker.address) is None
    await ours.close()
    await cluster.assert_client_is_gone()


@simulated(brokers=3)
async def test_connections_to_brokers_that_left_the_routes_are_retired(
    cluster: SimulatedCluster,
) -> None:
    _, leaving, _ = cluster.brokers
    async with cluster.producer(vip_channel=True) as producer:
        cluster.add_topic("orders")
        while not all(broker.received for broker in cluster.brokers):
            await producer.send(MESSAGE)
        cluster.add_topic("orders", brokers=["broker-a", "broker-c"])
        await asyncio.sleep(29)
        assert len(leaving.connections) == 1
        await asyncio.sleep(5)
        assert len(leaving.connections) == 0
        assert len(leaving._vip.connections) == 0
        # Neither are the NameServer, the others and their other ports.
        assert all(len(broker.connections) == 1 for broker in cluster.brokers if broker != leaving)
        assert all(
            len(broker._vip.connections) == 1 for broker in cluster.brokers if broker != leaving
        )
        assert len(cluster.dials(cluster.name_servers[0].address)) == 1


@simulated()
async def test_after_the_end_there_is_no_connection(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    ours, _ = connections(cluster)
    waiting = await ours.get(broker.address, timeout=1)
    broker.is_deaf = True
    asking = asyncio.create_task(waiting.request(QUESTION, timeout=3))
    await asyncio.sleep(0)
    await ours.close()
    with pytest.raises(ConnectionLost, match="closed on our side"):
        await asking
    with pytest.raises(IllegalState):
        await ours.get(broker.address, timeout=1)


# What travels on them.


@simulated()
async def test_a_refusal_is_an_error_with_its_code(cluster: SimulatedCluster) -> None:
    ours, _ = connections(cluster)
    address = cluster.name_servers[0].address
    with pytest.raises(BrokerError, match="REQUEST_CODE_NOT_SUPPORTED"):
        await ours.request(address, QUESTION, timeout=1)
    await ours.close()


@simulated()
async def test_every_request_is_signed_where_there_are_credentials(
    cluster: SimulatedCluster,
) -> None:
    (broker,) = cluster.brokers
    seen: list[RemotingCommand] = []

    def look(broker: FakeBroker, request: RemotingCommand, connection: Any) -> Any:
        seen.append(request)
        return store(broker, request, connection)

    broker.behaviour = look
    async with cluster.producer(credentials=Credentials("who", "sesame")) as producer:
        await producer.send(MESSAGE)
        await producer.send_oneway(MESSAGE)
    await asyncio.sleep(0.1)
    assert len(seen) == 2
    for request in seen:
        assert request.ext_fields[ACCESS_KEY] == "who"
        assert is_signed_by(request.ext_fields, request.body, "sesame")


@simulated()
async def test_with_tls_settings_every_connection_speaks_tls(cluster: SimulatedCluster) -> None:
    # The simulated network does not, and says so; the rest is tested on a real one.
    ours, _ = connections(cluster, tls=TlsSettings(verify=False))
    for server in cluster.servers:
        with pytest.raises(InvalidSetting, match="speaks no TLS"):
            await ours.get(server.address, timeout=1)
    await ours.close()


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_headers_are_written_as_is_set(serialize_type: SerializeType) -> None:
    seen: list[SerializeType] = []

    def look(broker: FakeBroker, request: RemotingCommand, connection: Any) -> Any:
        seen.append(request.serialize_type)
        return store(broker, request, connection)

    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        cluster.brokers[0].behaviour = look
        remoting = RemotingSettings(serialize_type=serialize_type)
        async with cluster.producer(remoting=remoting) as producer:
            await producer.send(MESSAGE)
            await producer.send_oneway(MESSAGE)
            await producer._instance.connections.send_oneway(
                cluster.brokers[0].address, QUESTION, timeout=1
            )
            await asyncio.sleep(0.1)
        oneway = cluster.brokers[0].last_other
        assert oneway is not None
        assert oneway.code == RequestCode.GET_MAX_OFFSET
        assert oneway.serialize_type is serialize_type

    test()
    assert seen == [serialize_type] * 2


@simulated()
async def test_the_limit_of_requests_in_flight_is_back_pressure(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    broker.behaviour = after(0.5)
    async with cluster.producer(remoting=RemotingSettings(requests_in_flight_max=2)) as producer:
        await producer.send(MESSAGE)
        began = cluster.now
        results = await asyncio.gather(*(producer.send(MESSAGE) for _ in range(4)))
        assert cluster.now - began == pytest.approx(1.0, abs=0.1)
        assert all(isinstance(each, SendResult) for each in results)
