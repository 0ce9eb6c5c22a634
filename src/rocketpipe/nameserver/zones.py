"""Routes for clients that want to stay in their own zone (ZoneRouteRPCHook in Java)."""

from dataclasses import replace

from rocketpipe.wire.bodies.route import BrokerData, TopicRouteData


def in_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """The part of a route that lies in a zone, and every broker without a master.

    The latter since a consumer may have to read from a slave, wherever that is.
    """

    def is_elsewhere(broker: BrokerData) -> bool:
        return 0 in broker.broker_addrs and (broker.zone_name or "").lower() != zone_name.lower()

    elsewhere = [broker for broker in route.broker_datas if is_elsewhere(broker)]
    names = {broker.broker_name for broker in elsewhere}
    addresses = {address for broker in elsewhere for address in broker.broker_addrs.values()}
    return replace(
        route,
        broker_datas=tuple(each for each in route.broker_datas if each.broker_name not in names),
        queue_datas=tuple(each for each in route.queue_datas if each.broker_name not in names),
        filter_server_table={
            address: servers
            for address, servers in route.filter_server_table.items()
            if address not in addresses
        },
    )
