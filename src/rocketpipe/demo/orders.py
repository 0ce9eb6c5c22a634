"""The messages of a shop: orders, each customer's in order, and what else people do there.

The same seed gives the same messages. A few customers order most, a few messages are large.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from rocketpipe.message import Message

ORDERS_SHARE = 0.4  # of all messages
CUSTOMERS = 400
NOTE_BYTES_MAX = 16_000

# How an order may go on: the next step, and how likely it is.
_NEXT_STEPS: dict[str, Sequence[tuple[str, float]]] = {
    "created": (("paid", 0.9), ("cancelled", 0.1)),
    "paid": (("packed", 0.95), ("refunded", 0.05)),
    "packed": (("shipped", 1.0),),
    "shipped": (("delivered", 0.93), ("returned", 0.07)),
}
_ACTIONS = (("viewed", 0.7), ("searched", 0.2), ("carted", 0.1))
_REGIONS = (("eu", 0.5), ("us", 0.3), ("asia", 0.2))
_PRODUCTS = ("lamp", "kettle", "chair", "book", "bicycle", "globe", "kite", "violin")


class Event(NamedTuple):
    """Something that happened in the shop, as a message."""

    message: Message
    customer: str
    sequence: int | None  # which of the customer's order events; None if its order is no matter

    @property
    def is_ordered(self) -> bool:
        return self.sequence is not None


@dataclass(slots=True)
class _Customer:
    name: str
    region: str
    sequence: int = 0
    orders: int = 0
    open_orders: dict[str, str] = field(default_factory=dict)  # the step that each is at


class Shop:
    """Makes up one event after another."""

    def __init__(self, *, seed: int, orders_topic: str, activity_topic: str) -> None:
        self._dice = random.Random(seed)
        self._orders_topic = orders_topic
        self._activity_topic = activity_topic
        self._customers = [
            _Customer(f"customer-{number:03}", _pick(self._dice, _REGIONS))
            for number in range(CUSTOMERS)
        ]
        # Zipf's law: the second orders half as often as the first, the third a third.
        self._weights = list(accumulate(1 / rank for rank in range(1, CUSTOMERS + 1)))

    def next_event(self, now_ms: int) -> Event:
        dice = self._dice
        customer = dice.choices(self._customers, cum_weights=self._weights)[0]
        if dice.random() < ORDERS_SHARE:
            return self._order_event(customer, now_ms)
        return self._activity(customer, now_ms)

    def _order_event(self, customer: _Customer, now_ms: int) -> Event:
        dice = self._dice
        customer.sequence += 1
        if customer.open_orders and dice.random() < 0.75:
            order = next(iter(customer.open_orders))  # the oldest
            step = _pick(dice, _NEXT_STEPS[customer.open_orders.pop(order)])
        else:
            customer.orders += 1
            order, step = f"{customer.name}-{customer.orders}", "created"
        if step in _NEXT_STEPS:
            customer.open_orders[order] = step
        items = [
            {"product": dice.choice(_PRODUCTS), "count": min(9, int(dice.paretovariate(1.5)))}
            for _ in range(min(12, int(dice.paretovariate(1.2))))
        ]
        body = {
            "customer": customer.name,
            "sequence": customer.sequence,
            "order": order,
            "step": step,
            "at_ms": now_ms,
            "total": round(dice.lognormvariate(3.5, 1.0), 2),
            "items": items,
            "note": _note(dice),
        }
        message = Message(
            self._orders_topic,
            _encode(body),
            tags=step,
            keys=(order, f"{customer.name}.{customer.sequence}"),
            properties={"region": customer.region},
            sharding_key=customer.name,
        )
        return Event(message, customer.name, customer.sequence)

    def _activity(self, customer: _Customer, now_ms: int) -> Event:
        dice = self._dice
        action = _pick(dice, _ACTIONS)
        body = {
            "customer": customer.name,
            "action": action,
            "product": dice.choice(_PRODUCTS),
            "at_ms": now_ms,
            "page": _note(dice),
        }
        message = Message(
            self._activity_topic,
            _encode(body),
            tags=action,
            keys=(customer.name,),
            properties={"region": customer.region},
        )
        return Event(message, customer.name, None)


def _pick(dice: random.Random, likely: Sequence[tuple[str, float]]) -> str:
    names, weights = zip(*likely, strict=True)
    return str(dice.choices(names, weights)[0])


def _note(dice: random.Random) -> str:
    """Some hundred characters mostly, some thousand at times."""
    length = min(NOTE_BYTES_MAX, int(dice.lognormvariate(4.8, 1.2)))
    words = " ".join(dice.choices(_PRODUCTS, k=1 + length // 6))
    return words[:length]


def _encode(body: dict[str, object]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
