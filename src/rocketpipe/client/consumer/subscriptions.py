"""Which messages of a topic a consumer wants, by tag or by SQL92."""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketpipe.client.checks import RETRY_PREFIX
from rocketpipe.client.setting_checks import require_type
from rocketpipe.errors import InvalidSetting
from rocketpipe.message import StoredMessage
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.subscription import ALL

SQL92 = "SQL92"


@dataclass(frozen=True, slots=True)
class Sql92:
    """A filter by properties, such as `Sql92("amount > 100 AND region = 'north'")`.

    Brokers evaluate it, if their setting enablePropertyFilter is on.
    """

    expression: str

    def __post_init__(self) -> None:
        require_type(self, str, "expression")
        if not self.expression.strip():
            raise InvalidSetting("an SQL92 filter says nothing: leave it out to get all messages")


# `TagA || TagB`, or `*` for all; or SQL92.
Expression = str | Sql92


def subscription(topic: str, expression: Expression, *, version: int) -> SubscriptionData:
    """What a broker is told; the version is the time in ms at which it was made."""
    if isinstance(expression, Sql92):
        return SubscriptionData(
            topic=topic,
            sub_string=expression.expression,
            sub_version=version,
            expression_type=SQL92,
        )
    if not isinstance(expression, str):
        raise InvalidSetting(f"{expression!r:.100} is no filter: give tags as text, or Sql92(...)")
    return SubscriptionData.of_tags(topic, expression, sub_version=version)


def is_filtered(data: SubscriptionData) -> bool:
    return data.expression_type == SQL92 or data.sub_string != ALL


def wanted(data: SubscriptionData, messages: list[StoredMessage]) -> list[StoredMessage]:
    """Those with the very tags: a broker compares hashes, and hashes collide."""
    tags = data.tags_set
    if not tags or data.expression_type == SQL92:
        return messages
    return [message for message in messages if message.properties.get("TAGS") in tags]


def retry_topic(group: str) -> str:
    """Where the messages come again that a group failed to consume."""
    return RETRY_PREFIX + group


def topics_of(subscriptions: Sequence[SubscriptionData]) -> set[str]:
    return {each.topic for each in subscriptions}
