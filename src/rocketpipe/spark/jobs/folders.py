"""Files of a job, wherever Spark can write: its driver's way to Hadoop's file systems.

`atomic` operations are so where renaming is: on a local disk, NFS and HDFS. Object stores copy
instead; a file then still appears as a whole.
"""

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from rocketpipe.errors import JobError


class Folder:
    """A folder by its URI or path. Names of files in it are relative to it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm = spark._jvm
        assert jvm is not None, "a session with its Java on this machine"
        self._jvm = jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        root = self._hadoop.Path(path)
        self._fs = root.getFileSystem(spark._jsc.hadoopConfiguration())
        self._root = self._fs.makeQualified(root)

    @property
    def path(self) -> str:
        """Its whole URI."""
        return str(self._root.toString())

    def child(self, name: str) -> str:
        return str(self._at(name).toString())

    def exists(self, name: str = "") -> bool:
        return bool(self._fs.exists(self._at(name)))

    def files(self, name: str = "") -> Iterator[tuple[str, int]]:
        """Each file below, however deep, by name and size; none where there is no folder."""
        if not self.exists(name):
            return
        found = self._fs.listFiles(self._at(name), True)
        prefix = self.path.rstrip("/") + "/"
        while found.hasNext():
            status = found.next()
            yield str(status.getPath().toString()).removeprefix(prefix), int(status.getLen())

    def names(self, name: str = "") -> list[str]:
        """What is right inside."""
        if not self.exists(name):
            return []
        return sorted(str(each.getPath().getName()) for each in self._fs.listStatus(self._at(name)))

    def make(self, name: str = "") -> None:
        self._fs.mkdirs(self._at(name))

    def move(self, name: str, to: str) -> None:
        """Atomic. Done already is done: so a move can be repeated."""
        target = self._at(to)
        if not self.exists(name):
            if not self.exists(to):
                raise JobError(f"{self.child(name)} is gone: somebody else changes this folder")
            return
        self._fs.mkdirs(target.getParent())
        if self._fs.exists(target):  # an object store was stopped between copying and deleting
            self._fs.delete(self._at(name), False)
        elif not self._fs.rename(self._at(name), target):
            raise JobError(f"{self.child(name)} can't be renamed to {self.child(to)}")

    def delete(self, name: str) -> None:
        self._fs.delete(self._at(name), True)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """None if there is no such file."""
        if not self.exists(name):
            return None
        stream = self._fs.open(self._at(name))
        try:
            text = str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        try:
            value = json.loads(text)
        except ValueError as error:
            raise JobError(f"{self.child(name)} is damaged: {error}") from None
        if not isinstance(value, dict):
            raise JobError(f"{self.child(name)} is damaged: it holds no JSON object")
        return value

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        """Atomic: the file is there as a whole, or not at all. JobError unless it is new."""
        if self.exists(name):
            raise JobError(f"somebody else has written {self.child(name)}")
        draft = f"{name}.new"
        stream = self._fs.create(self._at(draft), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()
        self.move(draft, name)

    def _at(self, name: str) -> Any:
        return self._hadoop.Path(self._root, name) if name else self._root
