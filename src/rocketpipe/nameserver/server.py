"""The NameServer as brokers, clients and mqadmin meet it: every request that Apache's answers.

Codes, remarks and bodies are those of Apache 5.5.0, but for this: a request that lacks a field, or
whose body or settings can't be read, is refused with SYSTEM_ERROR and a sentence of ours, where
Java takes some of them and tells of an exception at others. So is what would go beyond a limit.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

from rocketpipe.clock import Clock, SystemClock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import ClientError, InvalidSetting, MalformedBody
from rocketpipe.nameserver.kv import ORDER_TOPIC_CONFIG, KvConfig
from rocketpipe.nameserver.route_table import UNIT, UNIT_SUB, RouteTable
from rocketpipe.nameserver.settings import NameServerSettings
from rocketpipe.nameserver.zones import in_zone
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal, dispatch_by_code
from rocketpipe.remoting.network import Network
from rocketpipe.remoting.server import Server
from rocketpipe.remoting.settings import RemotingSettings
from rocketpipe.remoting.tls import ServerTls
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.route import BrokerMemberGroupAnswer, KVTable, TopicList, TopicRouteData
from rocketpipe.wire.bodies.topics import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from rocketpipe.wire.config_text import format_config, parse_config
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.hashing import body_crc
from rocketpipe.wire.headers import Header, Request
from rocketpipe.wire.java_text import read_bool
from rocketpipe.wire.requests import nameserver as requests

log = logging.getLogger(__name__)

Q = TypeVar("Q", bound=Request[Any])

V3_0_11: Final = 37  # ordinals of releases in a command's `version`
V4_9_4: Final = 401

# Fields that brokers and clients may add to their requests.
ZONE_NAME: Final = "__ZONE_NAME"
ZONE_MODE: Final = "__ZONE_MODE"

_SEE_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class NameServer:
    """Knows the brokers that register with it, and tells clients where topics are.

    await NameServer(AsyncioNetwork()).start(Address("127.0.0.1", 9876))
    """

    def __init__(
        self,
        network: Network,
        settings: NameServerSettings | None = None,
        *,
        clock: Clock | None = None,
        remoting: RemotingSettings | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        settings = settings or NameServerSettings()
        self._clock = clock or SystemClock()
        self._table: RouteTable[Connection] = RouteTable(settings)
        self._kv = KvConfig(settings.kv_config_path)
        self._server = Server(
            network,
            dispatch_by_code(self._handlers()),
            on_lost=self._table.lose,
            settings=remoting,
            tls=tls,
        )
        self._started_at = 0.0
        self._scanner: asyncio.Task[None] | None = None

    @property
    def settings(self) -> NameServerSettings:
        """As they are now: mqadmin can change them."""
        return self._table.settings

    async def start(self, address: Address) -> Address:
        """Listen there; the answer has the real port when 0 was asked."""
        if self._scanner is not None:
            raise ClientError("this NameServer was started before: make another one")
        listening = await self._server.listen(address)
        self._started_at = self._clock.monotonic()
        self._scanner = asyncio.create_task(self._scan())
        log.info("the NameServer listens on %s", listening)
        return listening

    async def close(self) -> None:
        """Listen no more, and close every connection."""
        if self._scanner is not None:
            self._scanner.cancel()
            await asyncio.wait([self._scanner])
        await self._server.close()

    async def kill(self) -> None:
        """End as a crash would: every connection is cut."""
        for connection in self._server.connections:
            connection.abort()
        await self.close()

    async def _scan(self) -> None:
        while True:
            await asyncio.sleep(self.settings.scan_not_active_broker_interval)
            for connection in self._table.expire(self._clock.monotonic()):
                connection.abort()

    def _handlers(self) -> dict[int, Handler]:
        table, kv = self._table, self._kv
        return dict(
            [
                _on(requests.PutKvConfig, self._put_kv),
                _on(requests.GetKvConfig, self._get_kv),
                _on(requests.DeleteKvConfig, lambda asked: kv.delete(asked.namespace, asked.key)),
                _on(requests.GetKvlistByNamespace, self._list_kv),
                (requests.RegisterBroker.code, self._register),
                _on(requests.UnregisterBroker, self._unregister),
                _on(requests.BrokerHeartbeat, self._heartbeat),
                (requests.QueryDataVersion.code, self._query_data_version),
                (requests.GetRouteinfoByTopic.code, self._route),
                _on(requests.GetBrokerClusterInfo, lambda _: table.cluster_info()),
                (requests.GetBrokerMemberGroup.code, self._member_group),
                _on(requests.GetAllTopicListFromNameserver, self._all_topics),
                _on(
                    requests.GetTopicsByCluster,
                    lambda asked: self._topic_list(table.topics_by_cluster(asked.cluster)),
                ),
                _on(requests.GetSystemTopicListFromNs, lambda _: table.system_topics()),
                _on(
                    requests.GetUnitTopicList,
                    lambda _: self._topic_list(table.topics_by_flag(UNIT, UNIT)),
                ),
                _on(
                    requests.GetHasUnitSubTopicList,
                    lambda _: self._topic_list(table.topics_by_flag(UNIT_SUB, UNIT_SUB)),
                ),
                _on(
                    requests.GetHasUnitSubUnunitTopicList,
                    lambda _: self._topic_list(table.topics_by_flag(UNIT | UNIT_SUB, UNIT_SUB)),
                ),
                _on(
                    requests.DeleteTopicInNamesrv,
                    lambda asked: table.delete_topic(asked.topic, asked.cluster_name),
                ),
                (requests.RegisterTopicInNamesrv.code, self._register_topic),
                _on(requests.WipeWritePermOfBroker, self._wipe_write_perm),
                _on(requests.AddWritePermOfBroker, self._add_write_perm),
                (requests.UpdateNamesrvConfig.code, self._update_config),
                (requests.GetNamesrvConfig.code, self._get_config),
            ]
        )

    # Brokers.

    def _register(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        request = requests.RegisterBroker.from_ext_fields(command.ext_fields)
        if request.body_crc32 != 0 and request.body_crc32 != body_crc(command.body):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        reply = self._table.register(
            request,
            _registration(command, is_compressed=request.compressed),
            zone_name=command.ext_fields.get(ZONE_NAME),
            connection=connection,
            now=self._clock.monotonic(),
        )
        ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
        if not self.settings.return_order_topic_config_to_broker:
            ordered = None
        body = KVTable(table=ordered).encode() if ordered is not None else b""
        return command.answer(ResponseCode.SUCCESS, None, reply.to_ext_fields(), body)

    def _unregister(self, asked: requests.UnregisterBroker) -> None:
        self._table.unregister(asked.cluster_name, asked.broker_name, asked.broker_addr)

    def _heartbeat(self, asked: requests.BrokerHeartbeat) -> None:
        self._hear(asked)

    def _hear(
        self, member: requests.BrokerHeartbeat | requests.QueryDataVersion
    ) -> DataVersion | None:
        name, address = member.broker_name, member.broker_addr
        return self._table.hear(member.cluster_name, name, address, now=self._clock.monotonic())

    def _query_data_version(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        request = requests.QueryDataVersion.from_ext_fields(command.ext_fields)
        asked = DataVersion.decode(command.body) if command.body else None
        known = self._hear(request)
        reply = requests.QueryDataVersionReply(changed=known is None or known != asked)
        body = known.encode() if known is not None else b""
        return command.answer(ResponseCode.SUCCESS, None, reply.to_ext_fields(), body)

    def _member_group(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        request = requests.GetBrokerMemberGroup.from_ext_fields(command.ext_fields)
        group = self._table.member_group(request.cluster_name, request.broker_name)
        body = BrokerMemberGroupAnswer(broker_member_group=group).encode()
        # The remark is Apache's: it says so of a success, too.
        return command.answer(ResponseCode.SUCCESS, "not set any response code", body=body)

    def _wipe_write_perm(self, asked: requests.WipeWritePermOfBroker) -> Header:
        count = self._table.wipe_write_perm(asked.broker_name)
        return requests.WipeWritePermReply(wipe_topic_count=count)

    def _add_write_perm(self, asked: requests.AddWritePermOfBroker) -> Header:
        count = self._table.add_write_perm(asked.broker_name)
        return requests.AddWritePermReply(add_topic_count=count)

    # Topics.

    def _route(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        request = requests.GetRouteinfoByTopic.from_ext_fields(command.ext_fields)
        up_for = self._clock.monotonic() - self._started_at
        if self.settings.need_wait_for_service and up_for < self.settings.wait_seconds_for_service:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._table.route(request.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {request.topic}{_SEE_FAQ}"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self.settings.order_message_enable:
            ordered = self._kv.get(ORDER_TOPIC_CONFIG, request.topic)
            route = replace(route, order_topic_conf=ordered)
        zone_name = command.ext_fields.get(ZONE_NAME, "")
        if zone_name.strip() and read_bool(command.ext_fields.get(ZONE_MODE, "")):
            route = in_zone(route, zone_name)
        is_standard = command.version >= V4_9_4 or bool(request.accept_standard_json_only)
        return command.answer(ResponseCode.SUCCESS, body=route.encode(standard=is_standard))

    def _register_topic(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        request = requests.RegisterTopicInNamesrv.from_ext_fields(command.ext_fields)
        if command.body:
            route = TopicRouteData.decode(command.body)
            self._table.register_topic(request.topic, route.queue_datas)
        return command.answer(ResponseCode.SUCCESS)

    def _all_topics(self, _: requests.GetAllTopicListFromNameserver) -> TopicList:
        if not self.settings.enable_all_topic_list:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")
        return self._table.all_topics()

    def _topic_list(self, topics: TopicList) -> TopicList:
        if not self.settings.enable_topic_list:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")
        return topics

    # KV configuration.

    def _put_kv(self, asked: requests.PutKvConfig) -> None:
        bytes_max = self.settings.kv_config_bytes_max
        self._kv.put(asked.namespace, asked.key, asked.value, bytes_max=bytes_max)

    def _get_kv(self, asked: requests.GetKvConfig) -> requests.KvConfig:
        value = self._kv.get(asked.namespace, asked.key)
        if value is None:
            remark = f"No config item, Namespace: {asked.namespace} Key: {asked.key}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return requests.KvConfig(value=value)

    def _list_kv(self, asked: requests.GetKvlistByNamespace) -> KVTable:
        table = self._kv.namespace(asked.namespace)
        if table is None:
            remark = f"No config item, Namespace: {asked.namespace}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return KVTable(table=table)

    # Our own settings.

    def _update_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        try:
            config = parse_config(command.body)
        except MalformedBody:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "string2Properties error") from None
        if any(map(self.settings.is_black_listed, config)):
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            self._table.settings = self.settings.updated(config)
        except InvalidSetting as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        log.info("%s changed settings: %s", connection.address, ", ".join(config))
        return command.answer(ResponseCode.SUCCESS)

    def _get_config(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        address = self._server.addresses[0]
        where = {"bindAddress": address.host, "listenPort": str(address.port)}
        config = dict(sorted({**self.settings.to_config(), **where}.items()))
        return command.answer(ResponseCode.SUCCESS, body=format_config(config))


def _on(declared: type[Q], process: Callable[[Q], Header | Body | None]) -> tuple[int, Handler]:
    """A request's code, and a handler that answers it with a header, a body, or just success."""

    def handle(_: Connection, command: RemotingCommand) -> RemotingCommand:
        outcome = process(declared.from_ext_fields(command.ext_fields))
        if isinstance(outcome, Header):
            return command.answer(ResponseCode.SUCCESS, ext_fields=outcome.to_ext_fields())
        body = outcome.encode() if outcome is not None else b""
        return command.answer(ResponseCode.SUCCESS, body=body)

    return declared.code, handle


def _registration(command: RemotingCommand, *, is_compressed: bool) -> RegisterBrokerBody:
    if not command.body:
        return RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigSerializeWrapper())
    if command.version < V3_0_11:  # they had nothing but topics to tell
        topics = TopicConfigSerializeWrapper.decode(command.body)
        return RegisterBrokerBody(topic_config_serialize_wrapper=topics)
    if is_compressed:
        return RegisterBrokerBody.decode_compressed(command.body)
    return RegisterBrokerBody.decode(command.body)
