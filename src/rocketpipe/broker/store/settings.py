"""The settings of a broker's store, with RocketMQ's defaults."""

from typing import Literal

from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass

# 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h: levels 1 to 18.
DELAY_LEVELS = (
    *(1.0, 5.0, 10.0, 30.0),
    *(60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0, 1200.0, 1800.0),
    *(3600.0, 7200.0),
)


TIMER_PRECISIONS = (1.0, 0.5, 0.2, 0.1)  # seconds; RocketMQ takes the next lower of these


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How a store writes, how long it keeps what it wrote, and when it takes no more.

    Where a default is not RocketMQ's, the comment says so.
    """

    flush_disk_type: Literal["async", "sync"] = "async"  # sync: an answer comes after fsync
    sync_flush_timeout: float = 5.0  # what is not on disk by then answers FLUSH_DISK_TIMEOUT
    flush_interval: float = 0.5  # with async: how much time a power loss may cost
    message_bytes_max: int = 4 * 1024 * 1024  # of a body, or of a whole batch
    delay_levels: tuple[float, ...] = DELAY_LEVELS  # seconds, from level 1 on
    # Timers are due at multiples of it. One that waits for longer than the window, so many times
    # the precision but at most half of file_reserved_time, is stored anew then.
    timer_precision: float = 1.0
    timer_roll_window_slots: int = 2 * 24 * 3600
    os_page_cache_busy_timeout: float = 1.0  # a put is refused when one has waited so long

    commit_log_segment_bytes: int = 256 * 1024 * 1024  # RocketMQ: 1 GiB, allocated ahead
    consume_queue_segment_entries: int = 300_000
    index_slots: int = 500_000  # RocketMQ: 5,000,000; ours are in memory while a file is filled
    index_entries_max: int = 2_000_000  # RocketMQ: 20,000,000
    # How far the derived files may fall behind the log: what a restart after a crash reads again.
    checkpoint_bytes: int = 16 * 1024 * 1024
    checkpoint_interval: float = 30.0

    file_reserved_time: float = 72 * 3600.0  # an older segment of the log is deleted
    clean_interval: float = 10.0  # how often age and free space are looked at
    disk_space_clean_forcibly_ratio: float = 0.85  # fuller: the oldest segments go at any age
    disk_space_warning_ratio: float = 0.90  # fuller: puts are refused
    # Not in RocketMQ: with so much room a disk is not full, whatever the ratios say.
    disk_free_bytes_enough: int = 4 * 1024 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.flush_disk_type not in ("async", "sync"):
            raise InvalidSetting(f"flush_disk_type is {self.flush_disk_type!r}: not async or sync")
        for name in (
            "message_bytes_max",
            "commit_log_segment_bytes",
            "consume_queue_segment_entries",
            "index_slots",
            "index_entries_max",
            "checkpoint_bytes",
            "timer_roll_window_slots",
        ):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidSetting(f"{name} is {value!r}: it must be a whole number above 0")
        if type(self.disk_free_bytes_enough) is not int or self.disk_free_bytes_enough < 0:
            raise InvalidSetting(
                f"disk_free_bytes_enough is {self.disk_free_bytes_enough!r}: not a number of bytes"
            )
        for name in (
            "sync_flush_timeout",
            "flush_interval",
            "os_page_cache_busy_timeout",
            "checkpoint_interval",
            "file_reserved_time",
            "clean_interval",
        ):
            if not _is_above_0(getattr(self, name)):
                value = getattr(self, name)
                raise InvalidSetting(f"{name} is {value!r}: it must be a number of seconds above 0")
        for name in ("disk_space_clean_forcibly_ratio", "disk_space_warning_ratio"):
            value = getattr(self, name)
            if not _is_above_0(value) or value > 1:
                raise InvalidSetting(f"{name} is {value!r}: it must be above 0 and at most 1")
        if self.timer_precision not in TIMER_PRECISIONS:
            raise InvalidSetting(
                f"timer_precision is {self.timer_precision!r}: not one of {TIMER_PRECISIONS}"
            )
        if not self.delay_levels or not all(map(_is_above_0, self.delay_levels)):
            raise InvalidSetting(f"delay_levels are {self.delay_levels!r}: not seconds above 0")


def _is_above_0(value: object) -> bool:
    return isinstance(value, int | float) and value > 0
