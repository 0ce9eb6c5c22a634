"""The documents, and the examples in them.

An example is a fenced block. `python` and `sh` are run, in the order of the document, in one folder
and against one cluster; all of `sh` in one shell; a Python example with `def test_` by pytest. A
comment on the line before says what is special:

    <!-- not run: why not -->      a reader is to see it, and a test can't do it
    <!-- run by tests/... -->      that test runs it, as it needs more than a shell and a cluster
    <!-- in the background -->     what a reader leaves running in a terminal of its own
    <!-- file: shop.py -->         a reader saves it under this name; a later example runs it
    <!-- exit code 1 -->           it shows how something fails

All other languages are read, not run: `text` is what a program prints.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

RUN = {"python", "sh"}
READ = {"text", "json", "toml", "properties", "java", "sql"}

_FENCE = re.compile(
    r"^(?:<!-- (?P<note>.*?) -->\n)?```(?P<language>.*?)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_SPARK_COMMANDS = re.compile(r"\brocketpipe (?:archive|publish|replay|audit|demo)\b|\bspark-submit")


def name_of(document: Path) -> str:
    """Its path in the repository, if it is there."""
    return str(document.relative_to(ROOT) if ROOT in document.parents else document)


class Example(NamedTuple):
    document: Path
    line: int  # of its first line
    language: str
    text: str
    note: str | None

    @property
    def place(self) -> str:
        return f"{name_of(self.document)}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in RUN and not (self.note or "").startswith(("not run: ", "run by "))

    @property
    def is_in_background(self) -> bool:
        return self.note == "in the background"

    @property
    def file(self) -> str | None:
        """The name under which a reader saves it."""
        name = re.fullmatch(r"file: ([\w.-]+)", self.note or "")
        return name[1] if name else None

    @property
    def serves(self) -> bool:
        """Whether it starts a cluster of its own."""
        return re.search(r"\brocketpipe serve\b(?!.*--join)", self.text) is not None

    @property
    def exit_code(self) -> int:
        code = re.fullmatch(r"exit code (\d+)", self.note or "")
        return int(code[1]) if code else 0

    @property
    def is_test(self) -> bool:
        return self.language == "python" and "def test_" in self.text

    @property
    def needs_session(self) -> bool:
        """Whether it uses a Spark session that it does not make, `spark`, or goes on from one that
        does: nothing that stands alone can do without an import."""
        if self.language != "python" or "spark = " in self.text:
            return False
        return re.search(r"\bspark\.(?!jobs)", self.text) is not None or "import " not in self.text

    @property
    def starts_spark(self) -> bool:
        """Whether it starts a Spark of its own."""
        return _SPARK_COMMANDS.search(self.text) is not None or "SparkSession" in self.text


def examples(document: Path) -> list[Example]:
    """All fenced blocks of a document, in their order."""
    content = document.read_text()
    return [
        Example(
            document,
            content.count("\n", 0, found.start("text")) + 1,
            found["language"],
            found["text"],
            found["note"],
        )
        for found in _FENCE.finditer(content)
    ]
