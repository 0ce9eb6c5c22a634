"""Which messages of a queue are wanted: by the code of their tag, or by their properties.

Whoever reads for a consumer makes a filter of what it asks for (`requested_filter`) or of what its
group subscribed to (`subscribed_filter`), and hands it to the store.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rocketpipe.codes import ResponseCode
from rocketpipe.errors import InvalidSetting
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.subscription import ALL, TagFilter, parse_tag_expression

if TYPE_CHECKING:
    from rocketpipe.broker.sql92.parser import Matches

SQL92 = "SQL92"
EXPRESSION_CHARACTERS_CACHED = 256


class MessageFilter(NamedTuple):
    """At most one of the two is there; with neither, all messages are wanted."""

    accepts: Callable[[int], bool] | None = None  # asked with the hash of a message's tag
    matches: "Matches | None" = None  # asked with its properties

    def wants(self, tags_code: int, properties: Callable[[], Mapping[str, str] | None]) -> bool:
        """Whether it wants a message whose properties can be had, if need be."""
        if self.matches is not None:
            found = properties()
            return found is not None and self.matches(found)
        return self.accepts is None or self.accepts(tags_code)


EVERYTHING = MessageFilter()


def is_tag_type(expression_type: str | None) -> bool:
    return expression_type is None or expression_type == "TAG"


def requested_filter(expression: str | None, expression_type: str | None) -> MessageFilter:
    """The filter that a request describes; InvalidSetting for one that makes no sense."""
    if not is_tag_type(expression_type):
        if not expression:
            raise InvalidSetting(f"Expression can't be null! {expression_type}")
        return MessageFilter(matches=property_filter(expression, expression_type))
    if expression is None or len(expression) <= EXPRESSION_CHARACTERS_CACHED:
        tag_filter = _parsed(expression)
    else:
        tag_filter = parse_tag_expression(expression)
    if tag_filter.expression == ALL:
        return EVERYTHING
    return MessageFilter(tag_filter.codes.__contains__)


def subscribed_filter(subscription: SubscriptionData) -> MessageFilter:
    """The filter that a group's heartbeats describe; a Refusal where none can be made of it."""
    if subscription.class_filter_mode:
        return EVERYTHING
    if is_tag_type(subscription.expression_type):
        is_all = subscription.sub_string == ALL
        return EVERYTHING if is_all else MessageFilter(subscription.code_set.__contains__)
    try:
        return requested_filter(subscription.sub_string, subscription.expression_type)
    except InvalidSetting as error:
        raise Refusal(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            "The broker's consumer filter data is not exist!Your expression may be wrong!",
        ) from error


def property_filter(expression: str, expression_type: str | None) -> "Matches":
    """What decides by properties; InvalidSetting for a wrong expression, or another language."""
    if expression_type != SQL92:
        raise InvalidSetting(f"there are no filters of type {expression_type!r:.40}")
    from rocketpipe.broker.sql92.parser import compile_filter  # few brokers are asked for it

    return compile_filter(expression)


def unsupported_filter(expression_type: str | None) -> Refusal:
    """As a broker of Apache's with enablePropertyFilter=false."""
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {expression_type}",
    )


def unparsable_filter() -> Refusal:
    return Refusal(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
    )


@lru_cache(maxsize=1024)  # a client asks the same each time
def _parsed(expression: str | None) -> TagFilter:
    return parse_tag_expression(expression)
