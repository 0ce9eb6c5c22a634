"""The administrator's client."""

from rocketpipe.client.admin.brokers import BrokerAdmin
from rocketpipe.client.admin.groups import GroupAdmin
from rocketpipe.client.admin.messages import MessageAdmin


class AsyncAdmin(GroupAdmin, MessageAdmin, BrokerAdmin):
    """Looks after a cluster.

    async with AsyncAdmin(namesrv="127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=8)
        stats = await admin.topic_stats("orders")

    Settings are those of ClientSettings, by name or as such an object. Each answer of a server may
    take `request_timeout`. What several brokers have to do is BrokersFailed unless all did it.
    """
