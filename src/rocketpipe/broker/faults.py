"""Faults on purpose: what a broker is to do wrong, to whom, and for how long.

Only the decisions: a fault is for this request, or it is not. `fault_layer` does what they say.
"""

import json
import math
import random
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from enum import StrEnum
from typing import Any, Final, Self, TypedDict, Unpack

from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import InvalidSetting, MalformedBody
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.frame import RemotingCommand

# A request of ours, far from Apache's codes: how other processes control the faults of a broker.
CONTROL_FAULTS: Final = 990_001

FAULTS_MAX = 1000
BUSY = "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 1000ms"

Delay = float | tuple[float, float] | Callable[[], float]
"""Seconds; or the least and the most of them; or a function that gives them, each time anew."""


class FaultKind(StrEnum):
    DELAY = "delay"
    REFUSE = "refuse"
    DROP_ANSWERS = "drop_answers"
    CUT = "cut"
    FREEZE = "freeze"
    FILL_DISK = "fill_disk"
    DETACH_SLAVES = "detach_slaves"
    STAND_STILL = "stand_still"
    STOP = "stop"
    KILL = "kill"


BEFORE = frozenset({FaultKind.REFUSE, FaultKind.CUT, FaultKind.FREEZE})  # instead of handling it
AFTER = frozenset({FaultKind.DELAY, FaultKind.DROP_ANSWERS})  # when it is to be answered
DOWN = frozenset({FaultKind.STOP, FaultKind.KILL})  # nobody is there to ask
WHOLE = DOWN | {FaultKind.STAND_STILL}  # of the server, by whoever runs it
_ALL_THE_TIME = frozenset({FaultKind.FILL_DISK, FaultKind.DETACH_SLAVES}) | WHOLE


class When(TypedDict, total=False):
    """Which requests a fault is for, and for how long: all of them until cleared, unless told."""

    code: int | Collection[int] | None
    topic: str | None
    times: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `id` is its broker's number for it, `hits` how many requests it has met."""

    kind: FaultKind
    code: int | Collection[int] | None = None  # for requests with this code, or one of these
    topic: str | None = None
    times: int | None = None
    seconds: float | None = None
    delay: Delay = 0.0
    response_code: int = ResponseCode.SYSTEM_ERROR
    remark: str = ""
    id: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        # All of it, though types say it too: others send us JSON, and what is wrong here would
        # make every request fail that the fault is for.
        if not isinstance(self.kind, FaultKind):
            raise InvalidSetting(f"kind is {self.kind!r}: it must be one of {', '.join(FaultKind)}")
        if self.code is not None and not (_is_number(self.code) or _are_numbers(self.code)):
            raise InvalidSetting(f"code is {self.code!r}: it must be a number, or several")
        if not _is_number(self.response_code):
            raise InvalidSetting(f"response_code is {self.response_code!r}: it must be a number")
        if self.topic is not None and not isinstance(self.topic, str):
            raise InvalidSetting(f"topic is {self.topic!r}: it must be a text")
        if not isinstance(self.remark, str):
            raise InvalidSetting(f"remark is {self.remark!r}: it must be a text")
        if self.times is not None and (type(self.times) is not int or self.times < 1):
            raise InvalidSetting(f"times is {self.times!r}: it must be a whole number above 0")
        if self.seconds is not None and not (_is_duration(self.seconds) and self.seconds > 0):
            raise InvalidSetting(f"seconds is {self.seconds!r}: it must be a number above 0")
        if self.kind is FaultKind.STAND_STILL and self.seconds is None:
            raise InvalidSetting(f"{self.kind} needs seconds: nobody could tell it that it is over")
        match self.delay:
            case tuple((low, high)) if _is_duration(low) and _is_duration(high) and low <= high:
                pass
            case delay if not callable(delay) and not _is_duration(delay):
                raise InvalidSetting(f"a delay of {delay!r}: neither seconds nor (least, most)")
        is_particular = (self.code, self.topic, self.times) != (None, None, None)
        if self.kind in _ALL_THE_TIME and is_particular:
            raise InvalidSetting(f"{self.kind} lasts for some seconds, whatever is asked meanwhile")

    def is_for(self, code: int, topic: str | None) -> bool:
        """Whether such a request is to suffer it."""
        if self.topic is not None and self.topic != topic:
            return False
        if self.code is None or isinstance(self.code, int):
            return self.code in (None, code)
        return code in self.code

    def seconds_to_wait(self, dice: random.Random) -> float:
        """How long this answer is delayed."""
        if isinstance(self.delay, tuple):
            return dice.uniform(*self.delay)
        return self.delay() if callable(self.delay) else self.delay

    def to_json(self) -> dict[str, Any]:
        """For other processes, which a function can't reach."""
        if callable(self.delay):
            raise InvalidSetting("a function can't travel: give seconds, or (least, most) of them")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if isinstance(self.code, Collection):
            values["code"] = sorted(self.code)
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        try:
            values = {**values, "kind": FaultKind(values["kind"])}
            if isinstance(values.get("delay"), list):
                values["delay"] = tuple(values["delay"])
            return cls(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedBody(f"not a fault: {error!r}") from error


def _is_duration(value: object) -> bool:
    # A whole number may be finite and yet too great for clocks, which are floats.
    return isinstance(value, int | float) and 0 <= value <= sys.float_info.max


def _is_number(value: object) -> bool:
    """Whether a header has room for this code."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return -(1 << 31) <= value < 1 << 31


def _are_numbers(values: object) -> bool:
    if not isinstance(values, Collection) or isinstance(values, str | bytes):
        return False
    return all(_is_number(each) for each in values)


class FaultControl(ABC):
    """Makes a broker misbehave; here and, as `BrokerFaults`, from other processes.

    Without more said a fault is for every request until it is cleared. `code` (one, or several),
    `topic`, `times` and `seconds` narrow that down:

        faults.delay((0.1, 0.5), code=RequestCode.SEND_MESSAGE_V2, seconds=10)
        faults.refuse(ResponseCode.NO_PERMISSION, "not today", topic="orders", times=3)
    """

    def delay(self, delay: Delay, **when: Unpack[When]) -> Fault:
        """Do what is asked at once, but answer only after so many seconds."""
        return self.add(Fault(kind=FaultKind.DELAY, delay=delay, **when))

    def refuse(self, code_of_answer: int, remark: str = "", **when: Unpack[When]) -> Fault:
        """Do nothing, and answer with this ResponseCode and remark."""
        return self.add(
            Fault(kind=FaultKind.REFUSE, response_code=code_of_answer, remark=remark, **when)
        )

    def busy(self, **when: Unpack[When]) -> Fault:
        """Refuse as a broker whose disk is too slow does."""
        return self.refuse(ResponseCode.SYSTEM_BUSY, BUSY, **when)

    def drop_answers(self, **when: Unpack[When]) -> Fault:
        """Do what is asked, and never answer."""
        return self.add(Fault(kind=FaultKind.DROP_ANSWERS, **when))

    def cut(self, **when: Unpack[When]) -> Fault:
        """Cut the connection of whoever asks, and do nothing."""
        return self.add(Fault(kind=FaultKind.CUT, **when))

    def freeze(self, **when: Unpack[When]) -> Fault:
        """Do nothing and answer nobody for now: what is asked meanwhile is done when it is over."""
        return self.add(Fault(kind=FaultKind.FREEZE, **when))

    def fill_disk(self, *, seconds: float | None = None) -> Fault:
        """No byte more fits on the disk: messages are refused, and can be read."""
        return self.add(Fault(kind=FaultKind.FILL_DISK, seconds=seconds))

    def detach_slaves(self, *, seconds: float | None = None) -> Fault:
        """Slaves lose the master's log, and do not get it back."""
        return self.add(Fault(kind=FaultKind.DETACH_SLAVES, seconds=seconds))

    def stand_still(self, *, seconds: float) -> Fault:
        """The whole server hangs: connections stay open, and it neither hears nor says a thing."""
        return self.add(Fault(kind=FaultKind.STAND_STILL, seconds=seconds))

    def stop(self, *, seconds: float | None = None) -> Fault:
        """The broker ends in order, and comes back by itself when the fault is over."""
        return self.add(Fault(kind=FaultKind.STOP, seconds=seconds))

    def kill(self, *, seconds: float | None = None) -> Fault:
        """The same, but it ends as a crash would."""
        return self.add(Fault(kind=FaultKind.KILL, seconds=seconds))

    @abstractmethod
    def cut_connections(self) -> None:
        """Cut all that are open, now: also of those who ask for nothing. They may come back."""

    @abstractmethod
    def add(self, fault: Fault) -> Fault:
        """From now on; the answer has the id by which to clear it."""

    @abstractmethod
    def active(self) -> list[Fault]:
        """Those that are not over, oldest first."""

    @abstractmethod
    def clear(self, fault: Fault | None = None) -> None:
        """End this one, or all."""


class FaultOrders(FaultControl):
    """The faults of a broker that takes orders: in another process, over whatever line."""

    def add(self, fault: Fault) -> Fault:
        return self._order({"add": fault.to_json()})[-1]

    def active(self) -> list[Fault]:
        return self._order({"list": True})

    def clear(self, fault: Fault | None = None) -> None:
        self._order({"clear": None if fault is None else fault.id})

    def cut_connections(self) -> None:
        self._order({"cut_connections": True})

    @abstractmethod
    def _order(self, order: dict[str, Any]) -> list[Fault]:
        """Have `control` do it there; the faults that are active then."""


class RunningFault:
    """A fault, and what became of it."""

    def __init__(self, fault: Fault, until: float) -> None:
        self.fault = fault
        self.until = until
        self.hits = 0

    @property
    def is_used_up(self) -> bool:
        return self.fault.times is not None and self.hits >= self.fault.times

    def is_over(self, now: float) -> bool:
        # Those that a freeze has met stay frozen when it meets no more.
        is_done = self.is_used_up and self.fault.kind is not FaultKind.FREEZE
        return is_done or now >= self.until


class Faults(FaultControl):
    """The faults of one broker. Any thread may add and clear them; they outlive a restart."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.on_changed: set[Callable[[], object]] = set()  # those who have to act at once
        self.on_cut: set[Callable[[], object]] = set()  # those who have connections
        self._now = now
        self._lock = threading.Lock()
        self._next_id = 1
        self._running: list[RunningFault] = []

    def __bool__(self) -> bool:
        """Whether there may be any: who handles requests asks this first, as it costs nothing."""
        return bool(self._running)

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._forget_old()
            if len(self._running) >= FAULTS_MAX:
                raise InvalidSetting(f"there are {FAULTS_MAX} faults already: clear some")
            fault = replace(fault, id=self._next_id, hits=0)
            self._next_id += 1
            seconds = math.inf if fault.seconds is None else fault.seconds
            self._running.append(RunningFault(fault, self._now() + seconds))
            self._keep()
        self._changed()
        return fault

    def active(self) -> list[Fault]:
        with self._lock:
            self._forget_old()
            return [replace(each.fault, hits=each.hits) for each in self._running]

    def clear(self, fault: Fault | None = None) -> None:
        with self._lock:
            self._running = [
                each for each in self._running if fault is not None and each.fault.id != fault.id
            ]
            self._keep()
        self._changed()

    def cut_connections(self) -> None:
        for cut in tuple(self.on_cut):
            cut()

    def take(
        self, kinds: Collection[FaultKind], code: int = 0, topic: str | None = None
    ) -> Fault | None:
        """The first fault of these kinds that such a request meets; it counts as met."""
        if not self._running:
            return None
        with self._lock:
            self._forget_old()
            for each in self._running:
                is_meant = each.fault.kind in kinds and each.fault.is_for(code, topic)
                if is_meant and not each.is_used_up:
                    each.hits += 1
                    self._keep()
                    return each.fault
            return None

    def is_now(self, kind: FaultKind) -> bool:
        """Whether a fault of this kind, which is for no request in particular, is active."""
        return self.take({kind}) is not None

    def seconds_left(self, fault: Fault) -> float:
        """Until it is over; 0 when it is."""
        with self._lock:
            ends = [each.until for each in self._running if each.fault.id == fault.id]
        return max(0.0, ends[0] - self._now()) if ends else 0.0

    def _forget_old(self) -> None:
        now = self._now()
        self._running = [each for each in self._running if not each.is_over(now)]

    def _keep(self) -> None:
        """There are others, or one has met a request; for those who keep them elsewhere, too."""

    def _changed(self) -> None:
        for listener in tuple(self.on_changed):
            listener()


_SHORT_NAMED = frozenset(
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)


def topic_of(request: RemotingCommand) -> str | None:
    """The topic that a request is about, if any."""
    if request.code in _SHORT_NAMED:
        return request.ext_fields.get("b")
    return request.ext_fields.get("topic") or request.ext_fields.get("originTopic")


def control(
    faults: Faults, body: bytes, cut_connections: Callable[[], None] | None = None
) -> list[Fault]:
    """Do what another process asks for; the faults that are active then.

    `cut_connections` spares the connection of who asks, if he has one: his answer goes over it.
    """
    try:
        order = json.loads(body)
        match order:
            case {"add": dict(values)}:
                faults.add(Fault.from_json(values))
            case {"clear": None}:
                faults.clear()
            case {"clear": int(id)}:
                faults.clear(Fault(kind=FaultKind.CUT, id=id))
            case {"cut_connections": True}:
                (cut_connections or faults.cut_connections)()
            case {"list": True}:
                pass
            case _:
                raise MalformedBody("neither add, nor clear, nor cut_connections, nor list")
    except (ValueError, RecursionError) as error:
        raise MalformedBody(f"not JSON: {error}") from error
    return faults.active()


def encode_faults(faults: list[Fault]) -> bytes:
    """Those that can travel; one with a function shows no delay."""
    shown = [replace(each, delay=0.0) if callable(each.delay) else each for each in faults]
    return json.dumps([each.to_json() for each in shown]).encode()


def decode_faults(body: bytes) -> list[Fault]:
    return [Fault.from_json(each) for each in json.loads(body)]
