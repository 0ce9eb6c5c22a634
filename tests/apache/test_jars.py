"""The cache of jars is whole or not there, and what is missing on a machine is said clearly."""

import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apache.jars import Unavailable, cache_folder, ensure_jars, fetch_with_maven, find_java

_POM = Path("pom.xml")


class FakeMaven:
    """Brings two jars, and counts how often it is asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, pom: Path, folder: Path) -> None:
        self.calls += 1
        for name in ("a.jar", "b.jar"):
            with zipfile.ZipFile(folder / name, "w") as jar:
                jar.writestr("content", name * 100)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_jars_are_fetched_once(tmp_path: Path) -> None:
    maven = FakeMaven()
    for _ in range(2):
        folder = ensure_jars(_POM, tmp_path / "5.5.0", maven)
        assert names(folder) == {"a.jar", "b.jar", "manifest.json"}
    assert maven.calls == 1


@pytest.mark.parametrize("damage", ["a jar is gone", "a jar is cut", "the manifest is cut"])
def test_an_incomplete_folder_is_fetched_again(tmp_path: Path, damage: str) -> None:
    maven = FakeMaven()
    folder = ensure_jars(_POM, tmp_path / "5.5.0", maven)
    if damage == "a jar is gone":
        (folder / "a.jar").unlink()
    else:
        os.truncate(folder / ("a.jar" if damage == "a jar is cut" else "manifest.json"), 10)
    ensure_jars(_POM, folder, maven)
    assert maven.calls == 2
    assert zipfile.is_zipfile(folder / "a.jar")


@pytest.mark.parametrize("error", [Unavailable("offline"), KeyboardInterrupt()])
def test_an_interrupted_fetch_leaves_nothing_that_looks_whole(
    tmp_path: Path, error: BaseException
) -> None:
    maven = FakeMaven()

    def break_off(pom: Path, folder: Path) -> None:
        maven(pom, folder)
        (folder / "left-over.jar").touch()
        raise error

    with pytest.raises(type(error)):
        ensure_jars(_POM, tmp_path / "5.5.0", break_off)
    assert not (tmp_path / "5.5.0").exists()
    assert names(ensure_jars(_POM, tmp_path / "5.5.0", maven)) == {
        "a.jar",
        "b.jar",
        "manifest.json",
    }


def test_a_damaged_jar_is_refused(tmp_path: Path) -> None:
    def bring_damaged(pom: Path, folder: Path) -> None:
        FakeMaven()(pom, folder)
        jar = folder / "a.jar"
        jar.write_bytes(jar.read_bytes().replace(b"a.jar", b"x.jar", 1))

    with pytest.raises(Unavailable, match=r"a\.jar came damaged"):
        ensure_jars(_POM, tmp_path / "5.5.0", bring_damaged)
    assert not (tmp_path / "5.5.0").exists()


def test_a_fetch_that_brings_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no jars"):
        ensure_jars(_POM, tmp_path / "5.5.0", lambda pom, folder: None)


def test_of_two_runs_at_once_one_fetches_and_the_other_waits(tmp_path: Path) -> None:
    maven = FakeMaven()
    both_ready = threading.Barrier(2)

    def fetch_slowly(pom: Path, folder: Path) -> None:
        time.sleep(0.1)
        maven(pom, folder)

    def run() -> None:
        both_ready.wait()
        ensure_jars(_POM, tmp_path / "5.5.0", fetch_slowly)

    runs = [threading.Thread(target=run) for _ in range(2)]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join()
    assert maven.calls == 1
    assert (tmp_path / "5.5.0" / "manifest.json").exists()


def test_the_cache_goes_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.delenv("ROCKETPIPE_CACHE", raising=False)
    assert cache_folder() == Path("/xdg/rocketpipe")
    monkeypatch.setenv("ROCKETPIPE_CACHE", "/chosen")
    assert cache_folder() == Path("/chosen")


def fake_tool(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The only folder on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    find_java.cache_clear()
    yield tmp_path
    find_java.cache_clear()


def test_missing_maven_is_named(tools: Path) -> None:
    with pytest.raises(Unavailable, match="mvn is missing: install Apache Maven"):
        fetch_with_maven(_POM, tools)


def test_missing_java_is_named(tools: Path) -> None:
    with pytest.raises(Unavailable, match="java is missing: install a JDK 17 or newer"):
        find_java()


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", "1"), ("11.0.2", "11")])
def test_an_old_java_is_named(tools: Path, version: str, major: str) -> None:
    fake_tool(tools / "java", f"echo 'openjdk version \"{version}\"' >&2")
    with pytest.raises(Unavailable, match=f"java is version {major}: install a JDK 17"):
        find_java()


def test_what_maven_says_offline_is_passed_on(tools: Path) -> None:
    fake_tool(tools / "java", "echo 'openjdk version \"21\"' >&2")
    fake_tool(tools / "mvn", "echo '[ERROR] Unknown host'; exit 1")
    with pytest.raises(Unavailable, match=r"Maven Central in reach.*\n\[ERROR\] Unknown host"):
        fetch_with_maven(_POM, tools)


@pytest.mark.slow
@pytest.mark.parametrize("ci", ["", "true"])
def test_a_missing_java_skips_aloud_and_fails_in_ci(tmp_path: Path, ci: str) -> None:
    test = "tests/apache/test_cluster.py::test_a_cluster_has_its_two_brokers_registered"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test],
        env={**os.environ, "PATH": str(tmp_path), "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no Apache RocketMQ 5.5.0 here: java is missing: install a JDK 17" in run.stdout
    if ci:
        assert run.returncode == 1
        assert "2 errors" in run.stdout
    else:
        assert run.returncode == 0
        assert "2 skipped" in run.stdout
