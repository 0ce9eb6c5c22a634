"""Which tags a subscription wants: `TagA || TagB`, or `*` for all (Java's FilterAPI)."""

from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.hashing import tags_code
from rocketpipe.wire.java_text import TRIMMED

ALL = "*"


@dataclass(frozen=True, slots=True)
class TagFilter:
    """A parsed tag expression. Brokers go by the codes, which may collide; clients by the tags."""

    expression: str
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()

    def accepts_code(self, code: int) -> bool:
        """What a broker asks, knowing only the hash in its consume queue."""
        return self.expression == ALL or code in self.codes

    def accepts(self, tags: str | None) -> bool:
        """What a client asks of each message it was sent (PullAPIWrapper.processPullResult)."""
        return not self.tags or tags in self.tags


def parse_tag_expression(expression: str | None) -> TagFilter:
    """The filter an expression stands for; nothing and `*` both mean every message."""
    if not expression or expression == ALL:
        return TagFilter(ALL)
    if not expression.replace("||", ""):
        raise InvalidSetting(f"tag expression {expression!r} names no tag")
    parts = (part.strip(TRIMMED) for part in expression.split("||"))
    tags = frozenset(part for part in parts if part)
    return TagFilter(expression, tags, frozenset(map(tags_code, tags)))
