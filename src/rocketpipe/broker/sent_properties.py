"""What a broker adds to the properties of a message that is sent to it.

Properties travel and are stored as one text. Nearly all messages need nothing but a few words added
at its end, so the text is taken apart only when one of the words that matter occurs in it.
"""

from collections.abc import Callable
from typing import NamedTuple

from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.waiting import TIMER_PREFIX
from rocketpipe.wire.java_text import write_bool
from rocketpipe.wire.properties import (
    CLUSTER,
    DELAY,
    INNER_NUM,
    MSG_REGION,
    POP_CK,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)

_UNIQ_KEY_MARK = f"{UNIQ_KEY}\x01"
_WAIT_MARK = f"{WAIT}\x01"
_WAIT_TRUE = f"{WAIT}\x01true\x02"
# What may ask for a treatment of its own, wherever in the text it stands.
_WORDS = (DELAY, CLUSTER, TRAN_MSG, TIMER_PREFIX, MSG_REGION, TRACE_ON, POP_CK, INNER_NUM)
WORDS = tuple(word.encode() for word in _WORDS)


class SentProperties(NamedTuple):
    """The properties of a sent message as they shall be stored."""

    text: str
    unique_id: str
    wait_store_ok: bool
    decoded: dict[str, str] | None  # None when nothing in them asks for a treatment of its own


class PropertyTreatment:
    """Adds the broker's words; made once, for every message."""

    def __init__(self, settings: BrokerSettings, next_unique_id: Callable[[], str]) -> None:
        self._added = {
            MSG_REGION: settings.region_id,
            TRACE_ON: write_bool(settings.trace_on),
            CLUSTER: settings.broker_cluster_name,
        }
        self._suffix = encode_properties(self._added)
        self.suffix = self._suffix.encode()
        self._next_unique_id = next_unique_id

    def treat(self, text: str) -> SentProperties:
        start = text.rfind(_UNIQ_KEY_MARK)  # of two the last counts
        waits = text.count(_WAIT_MARK)
        if (
            (start == 0 or (start > 0 and text[start - 1] == "\x02"))
            and DELAY not in text
            and (waits == 0 or (waits == 1 and _WAIT_TRUE in text))
            and CLUSTER not in text
            and TRAN_MSG not in text
            and TIMER_PREFIX not in text
            and MSG_REGION not in text
            and TRACE_ON not in text
            and POP_CK not in text
            and INNER_NUM not in text
        ):
            start += len(_UNIQ_KEY_MARK)
            end = text.find("\x02", start)
            unique_id = text[start:end] if end >= 0 else text[start:]
            if unique_id:
                ended = text if text[-1] == "\x02" else text + "\x02"
                return SentProperties(ended + self._suffix, unique_id, True, None)
        return self._treat_decoded(decode_properties(text))

    def _treat_decoded(self, properties: dict[str, str]) -> SentProperties:
        properties.pop(POP_CK, None)
        unique_id = properties.setdefault(UNIQ_KEY, self._next_unique_id())
        properties.update(self._added)
        wait_store_ok = properties.get(WAIT, "true").lower() == "true"
        return SentProperties(encode_properties(properties), unique_id, wait_store_ok, properties)
