"""Thresholds between two milliseconds of binary arithmetic: the bucket that rules name is the one that exists."""

from __future__ import annotations

import yaml

from triton_exporter.duration import parse_seconds
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.indicators import FirstResponse
from triton_slo.objective.reading import read


def test_every_threshold_in_milliseconds_names_its_bucket() -> None:
    """A first-response threshold of 2.01 s is the bucket 2010 of Triton's histogram, as is every other one."""
    texts = {n: f"{n / 1000:.3f}s" for n in range(1, 20_001)}
    edges = {n: FirstResponse(threshold=text).edge(parse_seconds(text))[1] for n, text in texts.items()}

    assert {} == {texts[n]: edge for n, edge in edges.items() if n != edge}


def test_rules_hold_no_number_with_binary_dust() -> None:
    """The selector of the bucket and the mean of a slice are written with the digits of the threshold."""
    objectives = [
        {"name": "first", "target": "99%", "indicator": {"kind": "first_response", "threshold": "2.01s"}},
        {"name": "slow", "target": "99%", "indicator": {"kind": "latency", "threshold": "2.01s"}},
    ]
    reading = read([("o.yaml", yaml.safe_dump({"objectives": objectives}))])
    text = "".join(one.text for one in artifacts(reading.objectives, Options()))

    assert 'le=~"2010(\\\\.0)?"' in text
    assert 'le="2.01"' in text
    assert "2010000" in text
    assert "99999999" not in text
