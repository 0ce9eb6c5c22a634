"""The disk of this machine, by the rules that the simulated one keeps too."""

import asyncio
import errno
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpipe.broker.store.disk import Disk, RealDisk
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.open_files import OpenFiles
from rocketpipe.clock import SystemClock
from rocketpipe.errors import StoreError, StoreLocked
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.testing.simulated_loop import run as run_simulated
from tests.stores import SMALL, bodies, draft, put_many

both_disks = pytest.mark.parametrize(
    ("disk", "run"),
    [(RealDisk(), asyncio.run), (SimulatedDisk(), run_simulated)],
    ids=["real", "simulated"],
)
Run = Callable[..., None]


@both_disks
def test_a_file_is_written_and_read_at_any_place(disk: Disk, run: Run, tmp_path: Path) -> None:
    disk.make_folder(tmp_path / "a" / "b")
    disk.make_folder(tmp_path / "a" / "b")
    path = tmp_path / "a" / "b" / "file"
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    file = disk.open(path, create=True)
    assert file.read_at(0, 9) == b""
    file.write_at(3, b"def")
    file.write_at(0, bytearray(b"ab"))
    assert file.size() == 6
    assert file.read_at(0, 9) == b"ab\0def"
    assert file.read_at(4, 1) == b"e"
    file.truncate(4)
    file.truncate(5)
    assert disk.open(path).read_at(1, 9) == b"b\0d\0"

    async def sync() -> None:
        await file.write_aside(5, b"aside")
        assert file.read_at(3, 9) == b"d\0aside"
        await file.sync()
        await disk.sync_folder(path.parent)

    run(sync())
    file.close()
    with pytest.raises(OSError):
        file.size()


@both_disks
def test_names_can_be_listed_changed_and_removed(disk: Disk, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    assert disk.names(folder) == []
    disk.make_folder(folder / "sub")
    for name in ("b", "a", "sub/c"):
        disk.open(folder / name, create=True).close()
    assert disk.names(folder) == ["a", "b", "sub"]
    disk.open(folder / "a").write_at(0, b"from a")
    disk.rename(folder / "a", folder / "b")
    assert disk.names(folder) == ["b", "sub"]
    assert disk.open(folder / "b").read_at(0, 9) == b"from a"
    disk.remove(folder / "b")
    disk.remove(folder / "b")
    disk.remove_folder(folder / "sub")
    disk.remove_folder(folder / "sub")
    assert disk.names(folder) == []


@both_disks
def test_a_lock_has_one_holder(disk: Disk, run: Run, tmp_path: Path) -> None:
    lock = disk.lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        disk.lock(tmp_path / "lock")
    lock.release()
    disk.lock(tmp_path / "lock").release()


@both_disks
def test_a_disk_knows_how_full_it_is(disk: Disk, run: Run, tmp_path: Path) -> None:
    usage = disk.usage(tmp_path)
    assert 0 <= usage.free <= usage.total
    assert usage.used_ratio == pytest.approx(1 - usage.free / usage.total)


def test_a_limit_in_the_middle_of_a_write_is_an_error(tmp_path: Path) -> None:
    # The size a file may have is the nearest to a full disk that a test can have for itself.
    file = RealDisk().open(tmp_path / "file", create=True)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            file.write_at(0, bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert caught.value.errno == errno.EFBIG
    assert file.size() == 1000
    file.close()


def test_a_store_on_the_real_disk_keeps_what_it_is_given(tmp_path: Path) -> None:
    async def fill() -> None:
        store = MessageStore(tmp_path / "s", SMALL, disk=RealDisk(), clock=SystemClock())
        await store.open()
        with pytest.raises(StoreLocked):
            await MessageStore(tmp_path / "s", SMALL, disk=RealDisk(), clock=SystemClock()).open()
        await put_many(store, 50)
        await store.delete_topic("none")
        assert bodies(store) == [b"body %d" % n for n in range(50)]
        await store.close()

    async def look() -> None:
        store = MessageStore(tmp_path / "s", SMALL, disk=RealDisk(), clock=SystemClock())
        await store.open()
        assert bodies(store) == [b"body %d" % n for n in range(50)]
        result = await store.put_and_wait(draft(b"more"))
        assert result.queue_offset == 50
        store.kill()

    files_before = open_files()
    asyncio.run(fill())
    asyncio.run(look())
    assert open_files() == files_before


def open_files() -> int:
    """How many files this process has open, where that can be asked."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


def test_a_folder_that_cannot_be_made_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def check() -> None:
        store = MessageStore(tmp_path / "file" / "s", SMALL, disk=RealDisk(), clock=SystemClock())
        with pytest.raises(StoreError, match="can't be used"):
            await store.open()

    asyncio.run(check())


def test_of_too_many_open_files_the_least_used_is_closed(tmp_path: Path) -> None:
    files = OpenFiles(RealDisk(), count_max=3)
    opened = [files.get(tmp_path / name, create=True) for name in "abc"]
    assert files.get(tmp_path / "a") is opened[0]
    files.get(tmp_path / "d", create=True)
    with pytest.raises(OSError):
        opened[1].size()
    assert [opened[0].size(), opened[2].size()] == [0, 0]
    files.close(tmp_path / "a")
    files.close(tmp_path / "a")
    with pytest.raises(OSError):
        opened[0].size()
    files.close_all()
    with pytest.raises(OSError):
        opened[2].size()
