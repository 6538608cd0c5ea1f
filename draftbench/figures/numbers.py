"""How a number is written everywhere: significant digits, intervals, units, and words where there is no number."""

import math

NOT_AVAILABLE = "not available"
_PLAIN_LIMIT = 1e6


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits without exponent or trailing noise: 1.62, 48.5, 1,234; `not available` for None."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    if value == 0:
        return "0"
    if abs(value) >= _PLAIN_LIMIT or abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def ratio(value: float | None) -> str:
    """A ratio with two decimals, so that ends of an interval compare by eye; three below 0.1."""
    if value is None or not math.isfinite(value):
        return NOT_AVAILABLE
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def interval(low: float | None, high: float | None, *, as_ratio: bool = False) -> str | None:
    """`1.48 to 1.77`; None where an end is missing."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return None
    write = ratio if as_ratio else number
    return f"{write(low)} to {write(high)}"


def estimate(
    value: float | None, low: float | None, high: float | None, reason: str | None = None, *, as_ratio: bool = False
) -> str:
    """`1.62 (1.48 to 1.77)`, `1.62 (no interval)`, or `not available: reason`."""
    if value is None or not math.isfinite(value):
        return not_available(reason)
    text = ratio(value) if as_ratio else number(value)
    return f"{text} ({interval(low, high, as_ratio=as_ratio) or 'no interval'})"


def not_available(reason: str | None) -> str:
    """`not available: reason`."""
    return f"{NOT_AVAILABLE}: {reason.strip().rstrip('.')}" if reason and reason.strip() else NOT_AVAILABLE


def percent(share: float | None) -> str:
    """A share as `98 %`; one decimal near 0 and 1 so that 99.6 % is not written as all."""
    if share is None or not math.isfinite(share):
        return NOT_AVAILABLE
    near_an_end = 0 < share < 0.01 or 0.99 < share < 1
    return f"{share * 100:.{1 if near_an_end else 0}f} %"


def confidence_label(confidence: float) -> str:
    """`95 %` of 0.95."""
    return f"{confidence * 100:.10g} %"


def counted(count: int | None, noun: str) -> str | None:
    """`1 block`, `2 blocks`; None where the count is missing."""
    if count is None:
        return None
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def sample_size(blocks: int | None, conversations: int | None) -> str:
    """`2 blocks, 4 conversations`, or empty."""
    parts = (counted(blocks, "block"), counted(conversations, "conversation"))
    return ", ".join(part for part in parts if part)


def duration(seconds: float | None) -> str:
    """`1 h 5 min`, `12 min`, `45 s`."""
    if seconds is None or not math.isfinite(seconds):
        return NOT_AVAILABLE
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
