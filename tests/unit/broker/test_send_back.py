"""Messages that consumers send back: retries with growing delays, and dead letters."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole
from rocketpipe.errors import BrokerError
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.requests.sending import ConsumerSendMsgBack
from tests.unit.broker.bench import Bench, messages, send, send_header, simulated
from tests.unit.broker.test_transactions import end_of, send_half

RETRY, DEAD, WAITING = "%RETRY%readers", "%DLQ%readers", "SCHEDULE_TOPIC_XXXX"


async def send_back(client: Connection, offset: int, **changes: Any) -> None:
    fields: dict[str, Any] = {"offset": offset, "group": "readers", "delay_level": 0}
    await client.request(ConsumerSendMsgBack(**(fields | changes)), timeout=3)


async def stored(client: Connection, broker: Broker) -> int:
    await send(client, properties={"UNIQ_KEY": "U1", "TAGS": "t"})
    return messages(broker)[-1].physical_offset


@simulated
async def test_a_message_comes_again_each_time_later_until_it_is_dead(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        offset = await stored(client, broker)
        (first,) = messages(broker)
        for times, delay in enumerate((10, 30), start=1):
            await send_back(client, offset, max_reconsume_times=2)
            await asyncio.sleep(delay - 0.5)
            assert len(messages(broker, RETRY)) == times - 1
            await asyncio.sleep(1)
            again = messages(broker, RETRY)[-1]
            assert again.body == first.body
            assert again.reconsume_times == times
            assert again.properties["RETRY_TOPIC"] == "orders"
            assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id
            assert again.properties["WAIT"] == "false"
            assert again.properties["DELAY"] == str(2 + times)
            assert again.tags == "t"
            offset = again.physical_offset
        await send_back(client, offset, max_reconsume_times=2)
        (dead,) = messages(broker, DEAD)
        assert (dead.body, dead.reconsume_times, dead.properties["DELAY"]) == (b"hello", 3, "0")
        assert broker.topics.table[DEAD].perm == Perm.READ | Perm.WRITE
        assert broker.topics.table[DEAD].write_queue_nums == 1


@simulated
async def test_a_consumer_may_choose_the_delay_or_give_up_at_once(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        offset = await stored(client, broker)
        await send_back(client, offset, delay_level=1)
        assert len(messages(broker, WAITING, 0)) == 1
        await send_back(client, offset, delay_level=-1)
        assert len(messages(broker, DEAD)) == 1


@simulated
async def test_the_group_says_how_often_when_the_consumer_does_not(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        broker.groups.put(SubscriptionGroupConfig(group_name="readers", retry_max_times=0))
        await send_back(client, await stored(client, broker))
        assert len(messages(broker, DEAD)) == 1


@simulated
async def test_a_group_without_retry_queues_wants_nothing_back(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        broker.groups.put(SubscriptionGroupConfig(group_name="readers", retry_queue_nums=0))
        await send_back(client, await stored(client, broker))
        assert broker.topics.get(RETRY) is None


@simulated
async def test_retries_go_to_any_of_a_groups_retry_queues(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        broker.groups.put(SubscriptionGroupConfig(group_name="readers", retry_queue_nums=3))
        offset = await stored(client, broker)
        for _ in range(30):
            await send_back(client, offset, delay_level=1)
        await asyncio.sleep(2)
        assert all(messages(broker, RETRY, queue_id) for queue_id in range(3))


def refusal(settings: dict[str, Any], **changes: Any) -> BrokerError:
    errors: list[BrokerError] = []

    @simulated
    async def ask(bench: Bench) -> None:
        async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
            offset = await stored(client, broker)
            with pytest.raises(BrokerError) as refused:
                await send_back(client, **{"offset": offset, **changes})
            errors.append(refused.value)

    ask()
    return errors[0]


def test_what_can_not_be_sent_back_is_refused_in_apaches_words() -> None:
    no_groups = refusal({"auto_create_subscription_group": False})
    assert no_groups.code == 26
    assert str(no_groups.remark).startswith("subscription group not exist, readers \nSee https:")
    unwritable = refusal({"broker_permission": Perm.READ})
    assert unwritable.code == 16
    assert unwritable.remark == "the broker[10.0.0.1] sending message is forbidden"
    nowhere = refusal({}, offset=3)
    assert (nowhere.code, nowhere.remark) == (1, "look message by offset failed, 3")


@simulated
async def test_a_retry_topic_that_may_not_be_written_takes_nothing(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        offset = await stored(client, broker)
        retry = broker.topics.create_inner(RETRY)
        assert retry is not None
        broker.topics.put([replace(retry, perm=Perm.READ)])
        with pytest.raises(BrokerError) as refused:
            await send_back(client, offset)
        assert refused.value.code == 16
        assert refused.value.remark == f"the topic[{RETRY}] sending message is forbidden"


@simulated
async def test_a_slave_takes_nothing_back(bench: Bench) -> None:
    role: dict[str, Any] = {"broker_role": BrokerRole.SLAVE, "broker_id": 1}
    async with bench.broker(**role) as slave, bench.client(slave.address) as client:
        with pytest.raises(BrokerError, match=r"\[REJECTREQUEST\]system busy") as refused:
            await send_back(client, 0)
        assert refused.value.code == 2


@simulated
async def test_what_came_of_a_transaction_comes_again_without_it(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, "other")  # the half message shall not stand at 0
        half = await send_half(client, bench)
        await client.request(end_of(half), timeout=3)
        (deal,) = messages(broker, queue_id=2)
        await send_back(client, deal.physical_offset, delay_level=-1)
        (dead,) = messages(broker, DEAD)
        assert deal.prepared_transaction_offset > 0
        assert dead.prepared_transaction_offset == 0


# A consumer whose send back failed sends the message to the retry topic itself.


@simulated
async def test_a_consumer_may_send_to_its_retry_topic_itself(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        fields: dict[str, Any] = {"reconsume_times": 2, "max_reconsume_times": 2}
        properties = {"UNIQ_KEY": "U", "DELAY": "1", "RETRY_TOPIC": "orders"}
        await send(client, RETRY, properties=properties, **fields)
        await asyncio.sleep(1.5)
        (again,) = messages(broker, RETRY)
        assert (again.reconsume_times, again.properties["RETRY_TOPIC"]) == (2, "orders")


@simulated
async def test_what_a_consumer_sent_too_often_is_dead(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, RETRY, reconsume_times=3, max_reconsume_times=2)
        await send(client, RETRY, reconsume_times=17)
        old = send_header(RETRY, reconsume_times=3, max_reconsume_times=2).to_command(b"old")
        old.version = 120  # its group decides: it does not know that it may
        await client.invoke(old, timeout=3)
        assert [each.body for each in messages(broker, RETRY)] == [b"old"]
        dead = messages(broker, DEAD)
        assert [each.properties["DELAY"] for each in dead] == ["-1", "-1"]


@simulated
async def test_a_retry_topic_of_no_group_takes_nothing(bench: Bench) -> None:
    settings = {"auto_create_subscription_group": False}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        with pytest.raises(BrokerError) as refused:
            await send(client, RETRY)
        assert refused.value.code == 26
