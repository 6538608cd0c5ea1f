"""How numbers are written."""

import pytest

from draftbench.figures import numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.4, "1,234"), (48.52, "48.5"), (0.01234, "0.0123"), (9.0, "9.00"), (0.0, "0"), (None, "not available")],
)
def test_three_significant_digits_without_exponent(value: float | None, text: str) -> None:
    """Ordinary magnitudes keep three significant digits; a missing value is said, never written as zero."""
    assert numbers.number(value) == text


def test_estimate_shows_value_and_interval_or_the_reason() -> None:
    """One format for all: value with interval, value without one, or the reason why there is none."""
    assert numbers.estimate(1.6249, 1.48, 1.7701, as_ratio=True) == "1.62 (1.48 to 1.77)"
    assert numbers.estimate(1.62, None, None, as_ratio=True) == "1.62 (no interval)"
    assert numbers.estimate(None, None, None, "one block only.") == "not available: one block only"


def test_nearly_all_is_not_written_as_all() -> None:
    """99.6 % must not read as 100 %."""
    assert numbers.percent(0.996) == "99.6 %"
    assert numbers.percent(1.0) == "100 %"
    assert numbers.percent(0.875) == "88 %"


def test_sample_size_in_words() -> None:
    """Singular and plural are right and missing parts are left out."""
    assert numbers.sample_size(1, 4) == "1 block, 4 conversations"
    assert numbers.sample_size(None, 1) == "1 conversation"


def test_durations_read_as_people_say_them() -> None:
    """Seconds, minutes, hours."""
    assert [numbers.duration(value) for value in (45, 640, 3900)] == ["45 s", "11 min", "1 h 5 min"]
