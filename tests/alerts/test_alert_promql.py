"""Test that adapting an expression to the options changes only windows, times and matchers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_alerts import rules
from triton_exporter.common.duration import duration_text, parse_seconds
from triton_slo.artifact import Options

DEMO = Options(time_scale=1 / 360, scrape_interval_seconds=1.0)


@pytest.mark.parametrize(
    ("expr", "fitted"),
    [
        ("increase(a_total[15m])", "increase(a_total[4s])"),
        ("rate(a_total[6h])", "rate(a_total[1m])"),
        ("a offset 1h", "a offset 10s"),
        ("max_over_time(a[6h:10m])", "max_over_time(a[1m:2s])"),
        ("max_over_time(a[6h:])", "max_over_time(a[1m:])"),
        ("time() - a > 10m", "time() - a > 2"),
        ('a{reason="10m [5m]"} > 5', 'a{reason="10m [5m]"} > 5'),
        ("vllm:a1_bucket > 1.5e3", "vllm:a1_bucket > 1.5e3"),
    ],
)
def test_a_time_scale_shrinks_every_time_and_only_times(expr: str, fitted: str) -> None:
    """Ranges, offsets, subqueries and bare durations scale; strings, names and numbers stay."""
    assert fitted == rules.fit_to_options(expr, DEMO)


@pytest.mark.parametrize(
    ("expr", "fitted"),
    [
        ("a", 'a{cluster="eu1"}'),
        ('a{b="c"}[5m]', 'a{b="c",cluster="eu1"}[5m]'),
        ("sum by (model, version) (rate(a[5m]))", 'sum by (model, version) (rate(a{cluster="eu1"}[5m]))'),
        ("sum(a) without (x)", 'sum(a{cluster="eu1"}) without (x)'),
        (
            "a / on (instance) group_left b and on () c",
            'a{cluster="eu1"} / on (instance) group_left b{cluster="eu1"} and on () c{cluster="eu1"}',
        ),
        ("a * on(i) group_left (x) b", 'a{cluster="eu1"} * on(i) group_left (x) b{cluster="eu1"}'),
        ("vector(1) unless a offset 5m > bool 2", 'vector(1) unless a{cluster="eu1"} offset 5m > bool 2'),
        ("absent(up)", 'absent(up{cluster="eu1"})'),
        (
            'sum without (r) (increase(a{r!="b"}[5m])) / on(c) group_left (d) e > 5m',
            'sum without (r) (increase(a{r!="b",cluster="eu1"}[5m])) / on(c) group_left (d) e{cluster="eu1"} > 300',
        ),
    ],
)
def test_a_selector_reaches_every_series(expr: str, fitted: str) -> None:
    """The matcher is added to each selector, not to functions, label lists or words of PromQL."""
    assert fitted == rules.fit_to_options(expr, Options(selector='cluster="eu1"'))


@given(st.integers(min_value=1, max_value=40 * 86400))
def test_durations_survive_being_written_and_read(seconds: int) -> None:
    """Writing whole seconds as a duration loses nothing."""
    assert seconds == parse_seconds(duration_text(seconds))


@given(st.floats(min_value=1e-6, max_value=1), st.integers(1, 60), st.integers(1, 10**6))
def test_no_window_is_shorter_than_four_scrapes(scale: float, scrape: int, nominal: int) -> None:
    """However fast the demo runs, a rate still sees samples."""
    options = Options(time_scale=scale, scrape_interval_seconds=scrape)

    assert parse_seconds(rules.window(f"{nominal}s", options)) >= 4 * scrape
