"""Test the notation of burn rates, budgets, short times and moments: the same wherever they are shown."""

from __future__ import annotations

import pytest

from triton_exporter.common.moments import hour_text, local_text, rfc3339, utc_text
from triton_slo.amounts import budget_left, burn_rate, digits, percent


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (1.0, "100.0%"),
        (0.6131, "61.3%"),
        (0.0, "0.0%"),
        (-0.0004, "0.0%"),
        (-0.12, "1.12x spent"),
        (-9.99, "11x spent"),
        (-793.37, "794x spent"),
        (-998.6, "1000x spent"),
    ],
)
def test_a_budget_is_what_is_left_or_how_often_it_is_spent(share: float, words: str) -> None:
    """A model that fails all the time at a thousand times the allowed rate has spent a thousand budgets."""
    assert words == budget_left(share)


@pytest.mark.parametrize(
    ("times", "words"), [(0.0, "0x"), (0.564, "0.564x"), (14.4, "14.4x"), (99.96, "100x"), (1000.4, "1000x")]
)
def test_a_burn_rate_is_times_the_allowed_rate(times: float, words: str) -> None:
    """Never in powers of ten."""
    assert words == burn_rate(times)


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0 %"), (0.001, "0.1 %"), (0.0346, "3.5 %"), (0.994, "99 %"), (0.997, "100 %"), (1.0, "100 %")],
)
def test_a_share_is_in_two_digits(share: float, words: str) -> None:
    """99.7 % was written as 1e+02 %."""
    assert words == percent(share)
    assert ["1234", "1.23"] == [digits(1234.4, 3), digits(1.2344, 3)]


@pytest.mark.parametrize(
    ("moment", "texts"),
    [
        (0.0, ("1970-01-01 00:00:00 UTC", "1970-01-01 01:00", "1970-01-01T00:00:00Z")),
        (1790805599.9, ("2026-09-30 21:59:59 UTC", "2026-09-30 23:59", "2026-09-30T21:59:59Z")),
    ],
)
def test_a_moment_is_in_utc_or_in_a_zone_that_is_named(moment: float, texts: tuple[str, str, str]) -> None:
    """For people, on the clocks of a report's zone, and for programs."""
    assert texts == (utc_text(moment), local_text(moment, "Europe/Berlin"), rfc3339(moment))
    assert ["21:59 UTC", "2026-09-30 21:59 UTC"] == [
        hour_text(1790805599, 1790805599 + ago) for ago in (60, 43_200)
    ]
