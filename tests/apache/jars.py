"""The jars of an Apache RocketMQ release, fetched once by Maven into a cache of the user.

A folder of the cache is whole or it is not there: the jars arrive in a sibling folder, are checked,
listed in a manifest and renamed into place. A lock keeps two test runs from doing so at once.
"""

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VERSIONS = ("5.5.0", "4.9.4")

_HERE = Path(__file__).parent
_MANIFEST = "manifest.json"
_JAVA_VERSION_MIN = 17

Fetch = Callable[[Path, Path], None]


class Unavailable(Exception):
    """Apache RocketMQ can't run here; the text says what to install or do."""


def jars(version: str) -> Path:
    """The folder with every jar of this release, fetched first where it is missing or damaged."""
    pom = _HERE / f"pom-{version}.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    return ensure_jars(pom, cache_folder() / "apache" / f"{version}-{digest}", fetch_with_maven)


def cache_folder() -> Path:
    """Where fetched things are kept between runs."""
    if chosen := os.environ.get("ROCKETPIPE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketpipe"


def ensure_jars(pom: Path, folder: Path, fetch: Fetch) -> Path:
    """Return `folder` once it holds what `fetch(pom, folder)` brings, all of it."""
    if _is_whole(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")):
        if _is_whole(folder):  # another run fetched it while we waited
            return folder
        # Only the holder of the lock comes here: what lies in the way was left by a broken run.
        partial = folder.with_name(folder.name + ".partial")
        for remains in (partial, folder):
            if remains.exists():
                shutil.rmtree(remains)
        partial.mkdir()
        fetch(pom, partial)
        sizes = {jar.name: _checked_size(jar) for jar in sorted(partial.glob("*.jar"))}
        if not sizes:
            raise Unavailable(f"fetching {pom.name} brought no jars")
        (partial / _MANIFEST).write_text(json.dumps(sizes, indent=1))
        partial.rename(folder)
    return folder


def fetch_with_maven(pom: Path, folder: Path) -> None:
    """Copy the jars that a pom lists, and all that they need, into a folder."""
    mvn = _find("mvn", "install Apache Maven (Debian: apt install maven)")
    find_java()
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    done = subprocess.run(
        [mvn, "-q", "-B", "-f", pom, goal, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "[ERROR]" in line]
        raise Unavailable(
            f"mvn could not fetch the jars of {pom.name}; is Maven Central in reach?\n"
            + "\n".join(errors[:5] or done.stdout.splitlines()[-5:])
        )


@functools.cache
def find_java() -> str:
    """The path of a java that is new enough."""
    advice = (
        f"install a JDK {_JAVA_VERSION_MIN} or newer (Debian: apt install openjdk-17-jdk-headless)"
    )
    java = _find("java", advice)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', answer)  # "17.0.15"; Java 8 calls itself "1.8"
    if not found or int(found[1]) < _JAVA_VERSION_MIN:
        raise Unavailable(f"java is version {found[1] if found else 'unknown'}: {advice}")
    return java


def _find(tool: str, advice: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise Unavailable(f"{tool} is missing: {advice}")
    return path


def _is_whole(folder: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _checked_size(jar: Path) -> int:
    try:
        with zipfile.ZipFile(jar) as archive:
            damaged = archive.testzip()
    except zipfile.BadZipFile as error:
        raise Unavailable(f"{jar.name} came damaged: {error}") from error
    if damaged:
        raise Unavailable(f"{jar.name} came damaged: {damaged} in it can't be read")
    return jar.stat().st_size


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed, also by a killed process
        yield
