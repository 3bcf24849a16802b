"""Test the notation of burn rates, budgets, short times and moments: the same wherever they are shown."""

from __future__ import annotations

import math

import pytest

from triton_exporter.common.duration import in_words, measured_text, parse_seconds, time_text
from triton_exporter.common.moments import hour_text, local_text, rfc3339, utc_text
from triton_slo.amounts import budget_left, burn_rate, digits, percent, ratio
from tritonwatch.status_table import duration, rate

SPENT = (
    *((1.0, "100.0%"), (0.6131, "61.3%"), (0.0, "0.0%"), (-0.0004, "0.0%"), (-0.12, "1.12x spent")),
    *((-9.99, "11x spent"), (-793.37, "794x spent"), (-998.6, "1000x spent")),
)
BURNED = ((0.0, "0x"), (0.564, "0.564x"), (14.4, "14.4x"), (99.96, "100x"), (1000.4, "1000x"))
SHARES = (
    *((0.0, "0 %"), (0.001, "0.1 %"), (0.0346, "3.5 %"), (0.994, "99 %"), (0.997, "100 %"), (1.0, "100 %")),
)
MOMENTS = (
    (0.0, ("1970-01-01 00:00:00 UTC", "1970-01-01 01:00", "1970-01-01T00:00:00Z")),
    (1790805599.9, ("2026-09-30 21:59:59 UTC", "2026-09-30 23:59", "2026-09-30T21:59:59Z")),
)
THRESHOLDS = ("0.25ms", "2.5ms", "500ms", "1s", "2.5s", "90s", "2m", "1h", "1d")
"""As objectives write them: none is rounded."""
MEASURED = (
    *((None, "-"), (0.0, "0ms"), (0.00035, "0.35ms"), (0.012512, "12.5ms"), (0.9996, "1s"), (93.44, "93.4s")),
)
LASTED = ((-1, "0s"), (59.7, "1m"), (200, "3m 20s"), (3600, "1h"), (11_100, "3h 5m"), (187_200, "2d 4h"))
"""In the two largest units; a clock that was set back gives no minus."""


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        *((text, time_text(parse_seconds(text))) for text in THRESHOLDS),
        *((text, measured_text(seconds)) for seconds, text in MEASURED),
        *((text, in_words(seconds)) for seconds, text in LASTED),
        *((words, budget_left(share)) for share, words in SPENT),
        *((words, burn_rate(times)) for times, words in BURNED),
        *((words, percent(share)) for share, words in SHARES),
        ("1234", digits(1234.4, 3)),
        ("1.23", digits(1.2344, 3)),
        *((texts, (utc_text(at), local_text(at, "Europe/Berlin"), rfc3339(at))) for at, texts in MOMENTS),
        ("21:59 UTC", hour_text(1790805599, 1790805599 + 60)),
        ("2026-09-30 21:59 UTC", hour_text(1790805599, 1790805599 + 43_200)),
        ("99.00%", ratio(0.99)),
        ("99.95%", ratio(0.9995)),
        ("99.9991%", ratio(0.999991)),
        ("99.99999990%", ratio(0.999999999)),
        ("100.00%", ratio(1.0)),
        ("42.10%", ratio(0.421)),
        ("unknown", ratio(None)),
        ("14.4x", rate(14.4)),
        ("1000x", rate(1000.0)),
        ("-", rate(None)),
        ("2d 3h", duration(2 * 86400 + 3 * 3600 + 59)),
        ("1h", duration(3600)),
        ("5m 1s", duration(301)),
        ("0s", duration(0)),
        ("not burning", duration(math.inf)),
        ("-", duration(None)),
    ],
)
def test_amounts_are_written_for_people(expected: object, actual: object) -> None:
    """With the digits that matter: 99.99 % is never 100 %, and a budget of a thousand times what is allowed is spent."""
    assert expected == actual
