"""Numbers, times and shares as people read them."""

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000


def count(number: float) -> str:
    """12,345"""
    return f"{number:,.0f}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """1 message, 2 messages"""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def short_count(number: float) -> str:
    """For axes: 950, 1.2k, 35k, 2M"""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"


def percent(share: float) -> str:
    """33 %, and more digits where they matter: 0.04 %, 99.97 %"""
    value = share * 100
    if value in (0, 100):
        return f"{value:.0f} %"
    for digits in range(4):
        text = f"{value:.{digits}f}"
        if 0 < float(text) < 100 and (digits or 1 <= value <= 99):
            return f"{text} %"
    return "under 0.001 %" if value < 50 else "over 99.999 %"


def milliseconds(value: float | None) -> str:
    """0.42 ms, 3.1 ms, 812 ms, 1.2 s"""
    if value is None:
        return "–"
    if value >= 100_000:
        return f"{value / 1000:,.0f} s"
    if value >= 1000:
        return f"{value / 1000:.3g} s"
    return f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"


def duration(ms: float) -> str:
    """800 ms, 4.2 s, 2 min 5 s, 1 h 30 min"""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.3g} s"
    seconds = round(ms / 1000)
    if seconds < 3600:
        rest = f" {seconds % 60} s" if seconds % 60 else ""
        return f"{seconds // 60} min{rest}"
    rest = f" {seconds % 3600 // 60} min" if seconds % 3600 // 60 else ""
    return f"{count(seconds // 3600)} h{rest}"


def utc(ms: int) -> str:
    """2026-11-17 19:25:34"""
    return _at(ms).strftime("%Y-%m-%d %H:%M:%S")


def moment(ms: int, started_ms: int, span_ms: int) -> str:
    """A time within a run: since its start if that is short (0:42), else by the clock, in UTC."""
    if span_ms < _HOUR:
        since = max(0, ms - started_ms) // 1000
        return f"{since // 60}:{since % 60:02d}"
    return _at(ms).strftime("%H:%M" if span_ms <= 2 * _DAY else "%d %b")


def _at(ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a clock that was wrong beyond all measure
        return datetime.fromtimestamp(0, UTC)
