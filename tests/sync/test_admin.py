"""The blocking administrator's client: the same as the async one, and it works."""

import inspect

import pytest

from rocketpipe import Admin, AsyncAdmin, MessageQueue
from rocketpipe.errors import IllegalState, NoRoute
from tests.sync.tiny_cluster import TinyCluster


def test_both_have_the_same_methods_with_the_same_signatures() -> None:
    asyncs, blocking = (
        {name for name in dir(each) if not name.startswith("_")} for each in (AsyncAdmin, Admin)
    )
    assert asyncs == blocking
    for name in (*sorted(asyncs), "__init__"):
        face = getattr(Admin, name)
        assert inspect.signature(face) == inspect.signature(getattr(AsyncAdmin, name)), name
        assert not inspect.iscoroutinefunction(face), name


def test_it_asks_and_waits(cluster: TinyCluster) -> None:
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.settings.namesrv == cluster.namesrv
        assert len(admin.publish_queues("orders")) == 4
        assert len(admin.subscribe_queues("orders")) == 4
        with pytest.raises(NoRoute):
            admin.min_offset(MessageQueue("orders", "b", 0))
    with pytest.raises(IllegalState):
        admin.topics()
