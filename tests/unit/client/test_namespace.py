"""Names with a namespace before them, as Java's NamespaceUtil has them."""

import pytest

from rocketpipe.client.namespace import with_namespace, without_namespace


@pytest.mark.parametrize(
    ("name", "on_the_wire"),
    [
        ("orders", "shop%orders"),
        ("shop%orders", "shop%orders"),
        ("shopping", "shop%shopping"),
        ("%RETRY%group", "%RETRY%shop%group"),
        ("%RETRY%shop%group", "%RETRY%shop%group"),
        ("%DLQ%group", "%DLQ%shop%group"),
    ],
)
def test_a_name_gets_its_namespace_once(name: str, on_the_wire: str) -> None:
    assert with_namespace("shop", name) == on_the_wire
    bare = name.replace("shop%", "")
    assert without_namespace("shop", on_the_wire) == bare


@pytest.mark.parametrize("name", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer"])
def test_topics_of_the_system_belong_to_everybody(name: str) -> None:
    assert with_namespace("shop", name) == name
    assert without_namespace("shop", name) == name


@pytest.mark.parametrize("namespace", [None, ""])
def test_without_a_namespace_nothing_changes(namespace: str | None) -> None:
    assert with_namespace(namespace, "orders") == "orders"
    assert without_namespace(namespace, "shop%orders") == "shop%orders"


def test_another_namespace_is_part_of_the_name() -> None:
    assert without_namespace("shop", "farm%orders") == "farm%orders"
    assert with_namespace("shop", "farm%orders") == "shop%farm%orders"
