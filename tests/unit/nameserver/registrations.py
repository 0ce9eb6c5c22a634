"""Registrations as brokers send them, in short."""

from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.bodies.topics import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketpipe.wire.requests.nameserver import RegisterBroker


def broker(
    name: str = "broker-a",
    address: str = "a:1",
    broker_id: int = 0,
    *,
    cluster: str = "C",
    heartbeat_timeout_millis: int | None = None,
    enable_acting_master: bool | None = False,
) -> RegisterBroker:
    return RegisterBroker(
        broker_name=name,
        broker_addr=address,
        cluster_name=cluster,
        ha_server_addr=f"ha-of-{address}",
        broker_id=broker_id,
        heartbeat_timeout_millis=heartbeat_timeout_millis,
        enable_acting_master=enable_acting_master,
    )


def topics(
    *names: str,
    counter: int = 1,
    state_version: int = 0,
    perm: Perm = Perm.READ | Perm.WRITE,
    sys_flag: int = 0,
    filter_servers: tuple[str, ...] = (),
    mappings: dict[str, object] | None = None,
) -> RegisterBrokerBody:
    return RegisterBrokerBody(
        filter_server_list=filter_servers,
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=counter, state_version=state_version),
            topic_config_table={
                name: TopicConfig(topic_name=name, perm=perm, topic_sys_flag=sys_flag)
                for name in names
            },
            topic_queue_mapping_info_map=mappings or {},
        ),
    )
