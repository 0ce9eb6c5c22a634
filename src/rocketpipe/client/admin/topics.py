"""Topics: made, changed, deleted, listed, where they live and what they hold."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rocketpipe.client.admin.asking import V5_0
from rocketpipe.client.admin.kv import KvAdmin
from rocketpipe.client.admin.values import QueueRange, TopicStats
from rocketpipe.client.checks import check_topic
from rocketpipe.client.route import TopicRoute, ordered_queues, subscribe_queues
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, ClientError, NoRoute
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.address import Address
from rocketpipe.wire.bodies.route import Perm, QueueData
from rocketpipe.wire.bodies.topics import TopicConfig
from rocketpipe.wire.requests.admin import (
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
    UpdateAndCreateTopic,
)
from rocketpipe.wire.requests.nameserver import (
    DeleteTopicInNamesrv,
    GetAllTopicListFromNameserver,
    GetSystemTopicListFromNs,
    GetTopicsByCluster,
)

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
MESSAGE_TYPE = "message.type"
READ_WRITE = Perm.READ | Perm.WRITE
ROUTE_PAUSE = 0.05  # between two looks whether the NameServer knows a change


class TopicAdmin(KvAdmin):
    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm = READ_WRITE,
        order: bool = False,
        message_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Make a topic on some brokers, on those of a cluster, or on all, and wait for its route.

        One that is there already is an error, or with `exist_ok` left as it is. `message_type` is
        NORMAL, FIFO, DELAY, TRANSACTION or MIXED; brokers before 5.0 have no such attributes.
        """
        check_topic(topic)
        masters = await self._masters(cluster=cluster, brokers=brokers)
        there = await self._configs(topic, masters, doing=f"look for topic {topic!r}")
        if there and not exist_ok:
            where = ", ".join(there)
            raise ClientError(f"topic {topic!r} is on {where} already: alter it instead")
        new = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues if write_queues is None else write_queues,
            perm=perm,
            order=order,
        )
        configs = {name: new for name in masters if name not in there}
        changes = _with_message_type(attributes, message_type)
        await self._put_topics(configs, masters, changes, doing=f"create topic {topic!r}")

    async def alter_topic(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: Perm | None = None,
        order: bool | None = None,
        message_type: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Change a topic on some brokers, or wherever it is; what is not given stays as it is.

        An attribute of None is taken away. It is ordered on all its brokers or on none.
        """
        doing = f"alter topic {topic!r}"
        if order is not None and brokers is not None:
            raise ClientError(f"{doing}: order is changed on all brokers, not on some")
        masters = await self._masters(brokers=brokers)
        current = await self._configs(topic, masters, doing=doing)
        missing = [name for name in masters if name not in current] if brokers is not None else []
        if not current or missing:
            where = ", ".join(missing or masters)
            raise NoRoute(topic, self._instance.name_servers.addresses, f"it is not on {where}")
        if order is None and await self.kv(ORDER_NAMESPACE, topic) is not None:
            order = True  # a broker of 4.9 learns that from the NameServer, some time
        wanted: dict[str, Any] = {
            "read_queue_nums": read_queues,
            "write_queue_nums": write_queues,
            "perm": perm,
            "order": order,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        configs = {name: replace(config, **given) for name, config in current.items()}
        changes = _with_message_type(attributes, message_type)
        if order is False:
            # First of all, as a broker that registers makes ordered what the NameServer says is.
            await self.delete_kv(ORDER_NAMESPACE, topic)
        await self._put_topics(configs, masters, changes, doing=doing)

    async def delete_topic(
        self, topic: str, *, cluster: str | None = None, missing_ok: bool = False
    ) -> None:
        """Delete a topic and what it holds, from one cluster or from all brokers."""
        doing = f"delete topic {topic!r}"
        masters = await self._masters(cluster=cluster)
        if not missing_ok:
            await self._route(topic)
        await self._ask_each(masters, DeleteTopicInBroker(topic=topic), doing=doing)
        request = DeleteTopicInNamesrv(topic=topic, cluster_name=cluster)
        await self._ask_every_name_server(request, doing=doing)
        await self._order_queues(topic, dict.fromkeys(masters))

    async def topics(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """The names of all topics, those of the system included, or of those of a cluster."""
        if cluster is None:
            reply = await self._ask_name_server(
                GetAllTopicListFromNameserver(), question="the topics"
            )
        else:
            await self.brokers(cluster=cluster)  # or one that does not exist would have none
            reply = await self._ask_name_server(
                GetTopicsByCluster(cluster=cluster), question=f"the topics of {cluster!r}"
            )
        return tuple(sorted(reply.topic_list))

    async def system_topics(self) -> frozenset[str]:
        """The topics that brokers have for themselves."""
        listed = await self._ask_name_server(
            GetSystemTopicListFromNs(), question="the system's topics"
        )
        own = await self._ask_each(
            await self._readers(), GetSystemTopicListFromBroker(), doing="list the system's topics"
        )
        return listed.topic_list.union(*(each.topic_list for each in own.values()))

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """A topic's settings on each of its brokers, by broker name."""
        brokers = await self._readers_of(topic)
        return await self._configs(topic, brokers, doing=f"read the settings of topic {topic!r}")

    async def topic_stats(self, topic: str) -> TopicStats:
        """What each queue of a topic holds."""
        brokers = await self._readers_of(topic)
        doing = f"ask what topic {topic!r} holds"
        tables = await self._ask_each(brokers, GetTopicStatsInfo(topic=topic), doing=doing)
        queues = {
            queue: QueueRange(
                max(0, each.min_offset), max(0, each.max_offset), each.last_update_timestamp or None
            )
            for table in tables.values()
            for queue, each in table.offset_table.items()
        }
        return TopicStats(topic, dict(sorted(queues.items())))

    async def topic_groups(self, topic: str) -> tuple[str, ...]:
        """The consumer groups that read a topic, or once did."""
        brokers = await self._readers_of(topic)
        doing = f"ask who reads topic {topic!r}"
        replies = await self._ask_each(brokers, QueryTopicConsumeByWho(topic=topic), doing=doing)
        return tuple(sorted(set().union(*(each.group_list for each in replies.values()))))

    async def route(self, topic: str) -> TopicRoute:
        """Which queues a topic has on which brokers, and where these are; NoRoute without any."""
        return await self._route(topic)

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that can be written to."""
        return (await self._route(topic)).publish_queues

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that can be read."""
        return tuple(subscribe_queues(await self._route(topic)))

    async def _configs(
        self, topic: str, brokers: Mapping[str, Address], *, doing: str
    ) -> dict[str, TopicConfig]:
        """The settings on those of the brokers that have the topic."""

        async def ask(_: str, address: Address) -> TopicConfig | None:
            try:
                return await self._ask(address, GetTopicConfig(topic=topic), doing=doing)
            except BrokerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
            # Before 5.0 a broker tells of all its topics or of none.
            everything = await self._ask(address, GetAllTopicConfig(), doing=doing)
            return everything.topic_config_table.get(topic)

        configs = await self._on_each(brokers, ask, doing=doing)
        return {name: config for name, config in configs.items() if config is not None}

    async def _put_topics(
        self,
        configs: Mapping[str, TopicConfig],
        masters: Mapping[str, Address],
        attributes: Mapping[str, str | None],
        *,
        doing: str,
    ) -> None:
        """Let brokers have a topic so, and wait until the NameServer knows."""
        if not configs:
            return
        targets = {name: masters[name] for name in configs}
        if attributes:
            why = "topics have no attributes there, as they do from 5.0 on"
            await self._on_each(
                targets, lambda _, at: self._require_release(at, V5_0, why), doing=doing
            )
        changes = _attribute_changes(attributes)

        async def put(name: str, address: Address) -> None:
            config = configs[name]
            request = UpdateAndCreateTopic(
                topic=config.topic_name,
                default_topic="TBW102",
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_filter_type=config.topic_filter_type,
                topic_sys_flag=config.topic_sys_flag,
                order=config.order,
                attributes=changes,
            )
            await self._ask(address, request, doing=doing)

        topic = next(iter(configs.values())).topic_name
        await self._on_each(targets, put, doing=doing)
        ordered = {name: each.write_queue_nums for name, each in configs.items() if each.order}
        await self._order_queues(topic, ordered)
        await self._wait_routed(topic, configs)

    async def _order_queues(self, topic: str, changes: Mapping[str, int | None]) -> None:
        """Tell NameServers how many queues an ordered topic has on each broker, dead or alive."""
        conf = await self.kv(ORDER_NAMESPACE, topic)
        current: dict[str, int | None] = dict(ordered_queues(conf or ""))
        wanted = {
            name: count for name, count in {**current, **changes}.items() if count is not None
        }
        if wanted == current:
            return
        if wanted:
            text = ";".join(f"{name}:{count}" for name, count in sorted(wanted.items()))
            await self.put_kv(ORDER_NAMESPACE, topic, text)
        else:
            await self.delete_kv(ORDER_NAMESPACE, topic)

    async def _wait_routed(self, topic: str, configs: Mapping[str, TopicConfig]) -> None:
        """A broker tells the NameServers a little later than it tells us."""
        wanted = {
            (name, config.read_queue_nums, config.write_queue_nums, config.perm)
            for name, config in configs.items()
        }
        now = asyncio.get_running_loop().time
        deadline = now() + self.settings.request_timeout
        while True:
            try:
                known = {_facts(each) for each in (await self._route(topic)).data.queue_datas}
            except NoRoute:
                known = set()
            if wanted <= known:
                return
            if now() >= deadline:
                addresses = self._instance.name_servers.addresses
                reason = "the brokers have it now, but the NameServer does not know yet"
                raise NoRoute(topic, addresses, reason)
            await asyncio.sleep(ROUTE_PAUSE)


def _facts(data: QueueData) -> tuple[str, int, int, Perm]:
    return data.broker_name, data.read_queue_nums, data.write_queue_nums, data.perm


def _with_message_type(
    attributes: Mapping[str, str | None] | Mapping[str, str] | None, message_type: str | None
) -> dict[str, str | None]:
    given = dict(attributes or {})
    return given if message_type is None else given | {MESSAGE_TYPE: message_type}


def _attribute_changes(attributes: Mapping[str, str | None]) -> str | None:
    """`+name=value,-name`, as a broker reads them."""
    for text in (part for pair in attributes.items() for part in pair if part is not None):
        if "," in text or "=" in text:
            raise ClientError(f"an attribute can't have a comma or an equals sign: {text!r}")
    changes = (f"-{k}" if v is None else f"+{k}={v}" for k, v in attributes.items())
    return ",".join(changes) or None
