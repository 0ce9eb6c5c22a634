"""Try the Spark source and sink with every release of PySpark 4: `make test-spark-releases`.

With one of them delta-spark reads what an archive has written as a table of Delta.

Each release is installed once, into a folder of the user's cache (about 500 MB each), and put
before the newest one on the path of a process that runs `tests/spark/release.py` with a cluster of
ours. The table of releases in docs/spark.md is what that program expects.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.apache.jars import cache_folder, ensure_jars, fetch_with_maven

ROOT = Path(__file__).parents[1]
RELEASES = ("4.0.5", "4.1.4", "4.2.1")  # the last of each; 4.3 is what all other tests run with
WITH_DELTA = "4.1.4"  # the newest that delta-spark on Maven Central is made for
SECONDS_MAX = 900


def main(releases: list[str]) -> None:
    failed = []
    for release in releases or RELEASES:
        folder = install(release)
        code = run(folder, delta_jars() if release == WITH_DELTA else [])
        print(f"PySpark {release}: {'ok' if code == 0 else f'failed ({code})'}", flush=True)
        if code != 0:
            failed.append(release)
    if failed:
        sys.exit(f"failed with PySpark {', '.join(failed)}")


def install(release: str) -> Path:
    """The folder of a release; it is whole, or it is not there."""
    folder = cache_folder() / "pyspark" / release
    if folder.exists():
        return folder
    print(f"fetching PySpark {release} ...", flush=True)
    partial = folder.with_name(f"{release}.{os.getpid()}.partial")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(partial)]
    try:
        subprocess.run([*command, f"pyspark=={release}"], check=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def delta_jars() -> list[Path]:
    """Those of Delta itself: all else comes with Spark."""
    pom = ROOT / "tests/spark/pom-delta.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    folder = ensure_jars(pom, cache_folder() / "delta" / digest, fetch_with_maven)
    return [jar for jar in folder.glob("*.jar") if jar.name.startswith(("delta", "unitycatalog"))]


def run(folder: Path, jars: list[Path]) -> int:
    path = os.pathsep.join(map(str, (folder, ROOT, ROOT / "src")))
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("SPARK_HOME", None)
    program = [sys.executable, "-W", "ignore", "-m", "tests.spark.release", *map(str, jars)]
    return subprocess.run(program, cwd=ROOT, env=environment, timeout=SECONDS_MAX).returncode


if __name__ == "__main__":
    main(sys.argv[1:])
