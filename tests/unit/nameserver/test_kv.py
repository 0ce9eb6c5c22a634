"""Texts by namespace and key, and the file that keeps them."""

from pathlib import Path

import pytest

from rocketpipe.errors import InvalidSetting
from rocketpipe.nameserver.kv import KvConfig
from rocketpipe.remoting.dispatch import Refusal

ROOM = 1000


def test_a_text_is_there_until_it_is_deleted() -> None:
    kv = KvConfig()
    kv.put("n", "k", "v", bytes_max=ROOM)
    assert kv.get("n", "k") == "v"
    assert kv.get("n", "other") is None
    assert kv.get("other", "k") is None
    assert kv.namespace("other") is None
    kv.delete("n", "k")
    kv.delete("n", "k")
    kv.delete("other", "k")
    assert kv.get("n", "k") is None
    assert kv.namespace("n") == {}
    assert kv.namespace("other") is None


def test_there_is_a_limit_to_all_of_them_together() -> None:
    kv = KvConfig()
    kv.put("n", "k1", "é", bytes_max=9)  # five bytes
    with pytest.raises(Refusal, match="over 9 bytes"):
        kv.put("n", "k2", "123", bytes_max=9)
    assert kv.get("n", "k2") is None
    kv.put("n", "k2", "12", bytes_max=9)
    kv.put("n", "k2", "34", bytes_max=9)  # in place of the other


def test_the_file_is_read_again_and_is_apaches(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    kv = KvConfig(path)
    kv.put("n", "名字", 'v "quoted"', bytes_max=ROOM)
    kv.put("n", "k", "v", bytes_max=ROOM)
    kv.delete("n", "k")
    assert path.read_text(encoding="utf-8") == ('{"configTable":{"n":{"名字":"v \\"quoted\\""}}}')
    assert KvConfig(path).namespace("n") == {"名字": 'v "quoted"'}
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_that_makes_no_sense_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{oops")
    with pytest.raises(InvalidSetting, match=r"kvConfig\.json holds no KV configuration"):
        KvConfig(path)
    assert path.read_text() == "{oops"


def test_what_could_not_be_written_did_not_happen(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    kv = KvConfig(path)
    kv.put("n", "k", "old", bytes_max=ROOM)
    path.with_name(path.name + ".tmp").mkdir()  # in the way
    with pytest.raises(OSError, match="directory"):
        kv.put("n", "k", "new", bytes_max=ROOM)
    with pytest.raises(OSError, match="directory"):
        kv.delete("n", "k")
    assert kv.get("n", "k") == "old"
    assert KvConfig(path).get("n", "k") == "old"
