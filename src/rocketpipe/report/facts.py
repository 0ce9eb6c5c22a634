"""What a report tells: plain rows of plain values, made by an audit, a demo or a test.

Times are milliseconds since 1970, latencies milliseconds, shares between 0 and 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """All sends together. A send is a message, or a batch, with all of its attempts."""

    sends: int = 0
    messages: int = 0
    acknowledged: int = 0  # sends that a broker said it stored
    oneway: int = 0  # sends that nobody answers
    failed: int = 0  # neither
    attempts: int = 0
    retries: int = 0  # attempts after the first
    p50_ms: float | None = None  # of whole sends, retries and pauses included
    p90_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Attempts at a broker, or at one of its queues, or in a window of time; whatever is given."""

    start_ms: int | None = None
    topic: str | None = None
    broker: str | None = None
    queue_id: int | None = None
    attempts: int = 0
    stored: int = 0
    failed: int = 0
    retries: int = 0
    messages: int = 0  # stored ones
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    """How many attempts of a window took so long: bucket b is 10**(b/5) up to 10**((b+1)/5) ms."""

    start_ms: int
    bucket: int
    attempts: int


BUCKETS_PER_DECADE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsPerSend:
    attempts: int
    sends: int
    acknowledged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """A time in which producers passed a broker over, because they knew it to be sick."""

    policy: str
    broker: str
    start_ms: int
    end_ms: int
    passed_over: int  # attempts that went elsewhere
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How much a policy moved away from a broker: what uniform choice would have sent there, and
    what it did send. Only first attempts, and no queue that a caller or a selector chose."""

    policy: str
    broker: str
    sends: int
    expected: float
    isolated: float  # how much of what was expected came while it was isolated, and went elsewhere

    @property
    def moved(self) -> float:
        """Below 0, that much came from others."""
        return self.expected - self.sends


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """How evenly a policy spread first attempts over the queues of a topic (broker None), or over
    those of one broker."""

    policy: str
    topic: str
    broker: str | None
    queues: int
    sends: int
    least: int
    most: int
    chi_square: float
    p_value: float  # how likely even choice is at least as uneven as this


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedlessRetries:
    """Retries that should not have been, of one kind."""

    kind: str
    retries: int
    sample: Sequence[str] = ()  # ids of messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What producers know of a topic's messages against what is stored; counts of messages."""

    topic: str
    sent: int
    acknowledged: int
    stored: int  # of those sent, once each
    lost: int  # acknowledged, but not stored
    repeated: int  # stored more than once
    unacknowledged: int  # stored, but no producer was told
    others: int = 0  # stored, but sent by none of these producers
    failed: int = 0  # neither acknowledged nor stored, and the producer was told so
    oneway: int = 0  # sent without an answer,
    oneway_missing: int = 0  # and those of them that are not stored
    waiting: int = 0  # delayed, and not delivered so far
    uncommitted: int = 0  # half messages that did not become messages
    expired: int = 0  # acknowledged, but deleted by retention before anybody looked
    rows_twice: int = 0  # rows of a table about a place that another row is about
    lost_ids: Sequence[str] = ()  # some, here and below
    repeated_ids: Sequence[str] = ()
    unacknowledged_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that was done to the cluster on purpose."""

    at_ms: int
    what: str  # what the broker does or suffers: "answers late", "is killed"
    until_ms: int | None = None  # None: to the end
    broker: str | None = None  # None: to all


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """Progress of the pipeline that read the messages meanwhile."""

    time_ms: int
    rows: int
    rows_per_second: float
    lag: int | None = None  # messages that waited for it when it began
    query: str = "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """All that a report tells. What is empty is left out of it."""

    title: str
    started_ms: int
    ended_ms: int
    window_ms: int
    totals: Totals = Totals()
    policies: Sequence[str] = ()
    brokers: Sequence[Traffic] = ()
    queues: Sequence[Traffic] = ()
    windows: Sequence[Traffic] = ()  # by window and broker
    latency: Sequence[Traffic] = ()  # by window, all brokers together
    heat: Sequence[HeatCell] = ()
    attempts_per_send: Sequence[AttemptsPerSend] = ()
    isolations: Sequence[Isolation] = ()
    moved: Sequence[Moved] = ()
    skew: Sequence[Skew] = ()
    needless_retries: Sequence[NeedlessRetries] = ()
    reconciliation: Sequence[Reconciled] | None = None  # None: nobody looked at what is stored
    events: Sequence[Event] = ()
    pipeline: Sequence[MicroBatch] = ()
    comparison: Sequence["PolicySummary"] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    how_to_reproduce: str = ""  # commands, a line each
    remarks: Sequence[str] = ()  # what the pictures do not say by themselves
    notes: Sequence[str] = ()  # what was cut, or could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """One of several runs that a report compares."""

    policy: str
    facts: ReportFacts  # of that run, for its totals, its reconciliation and its small pictures
