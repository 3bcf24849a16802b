"""Test the quantiles of panels: over all servers, and finer than the buckets where exporters estimate them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promtool import evaluated
from support.tools import newest, promtools
from triton_dashboards.query import RATE, BoardScope, RawTraffic
from triton_exporter.catalogue import state

HISTOGRAM, ESTIMATED = state.REQUEST_DURATION, state.REQUEST_QUANTILE


def server(name: str, p99: str = "", version: str = "1") -> dict[str, str]:
    """100 requests a minute, of which 95 take at most 0.2 s and all others at most 0.5 s: p99 is in between."""
    labels = f'instance="{name}",model="m",version="{version}"'
    counts = {"0.1": 0, "0.2": 95, "0.5": 100, "+Inf": 100}
    series = {f'{HISTOGRAM}_bucket{{{labels},le="{le}"}}': f"0+{count}x20" for le, count in counts.items()}
    return series | ({f'{ESTIMATED}{{{labels},quantile="0.99"}}': p99} if p99 else {})


@pytest.mark.real
@pytest.mark.parametrize("tool", newest(promtools()), ids=str)
@pytest.mark.parametrize(
    ("servers", "shown"),
    [
        (server("a"), 0.44),
        (server("a", "0.3x20"), 0.3),
        (server("a", "0.3x20") | server("b", "0.32x20"), 0.32),
        (server("a", "0.3x20") | server("b", "0.9x20"), 0.44),
        (server("a", "0.46x20") | server("b", "0.9x20"), 0.46),
        (server("a", "0.3x20") | server("b"), 0.3),
        (server("a", "_x20"), 0.44),
    ],
)
def test_p99_of_all_servers_is_between_those_that_they_estimate(
    tool: Path, tmp_path: Path, servers: dict[str, str], shown: float
) -> None:
    """histogram_quantile gives 0.44 between its bounds 0.2 and 0.5; no server's own p99 may contradict it."""
    raw = RawTraffic(BoardScope(('model="m"',)))
    asked = [(raw.quantile(0.99, *by).replace(RATE, "5m"), 600.0) for by in ((), ("version",))]
    answer = evaluated(tool, tmp_path, "{}", servers, asked, interval=60, evaluation=60)

    assert [shown, shown] == pytest.approx([value for answer in answer for _, value in answer])


@pytest.mark.real
def test_a_version_without_requests_has_no_p99(tmp_path: Path) -> None:
    """Its server still estimates one, of earlier requests."""
    idle = {
        series: "0x20" if "_bucket" in series else values
        for series, values in server("a", "0.3x20", "2").items()
    }
    asked = [(RawTraffic(BoardScope(())).quantile(0.99, "version").replace(RATE, "5m"), 600.0)]
    [answer] = evaluated(
        promtools()[0], tmp_path, "{}", server("a", "0.3x20") | idle, asked, interval=60, evaluation=60
    )

    assert [({"version": "1"}, 0.3)] == [
        ({name: label for name, label in labels.items() if name != "__name__"}, value)
        for labels, value in answer
    ]
