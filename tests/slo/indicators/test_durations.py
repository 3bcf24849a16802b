"""Test thresholds between two milliseconds of binary arithmetic: the rules name the bucket that exists."""

from __future__ import annotations

import pytest
import yaml

from triton_exporter.app.settings import Settings
from triton_exporter.common.duration import parse_seconds
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.indicators.first_response import milliseconds
from triton_slo.objective.reading import read
from tritonwatch.cli import main


def test_every_threshold_in_milliseconds_names_its_bucket() -> None:
    """A first-response threshold of 2.01 s is the bucket 2010 of Triton's histogram, as is every other one."""
    texts = {n: f"{n / 1000:.3f}s" for n in range(1, 20_001)}
    edges = {n: milliseconds(parse_seconds(text)) for n, text in texts.items()}

    assert {} == {texts[n]: edge for n, edge in edges.items() if n != edge}


def test_rules_have_no_number_with_a_rounding_error() -> None:
    """The selector of the bucket is written with the digits of the threshold."""
    objectives = [
        {"name": "first", "target": "99%", "indicator": {"kind": "first_response", "threshold": "2.01s"}},
        {"name": "slow", "target": "99%", "indicator": {"kind": "latency", "threshold": "2.01s"}},
    ]
    reading = read([("o.yaml", yaml.safe_dump({"objectives": objectives}))])
    text = "".join(artifact.text for artifact in artifacts(reading.objectives, Options()))

    assert 'le=~"2010(\\\\.0)?"' in text
    assert 'le="2.01"' in text
    assert "99999999" not in text


@pytest.mark.parametrize("text", ["0.5", "500ms", "0.5s"])
def test_an_option_takes_a_duration_with_or_without_its_unit(text: str) -> None:
    """Seconds without a unit are what earlier releases took."""
    given = {"triton": "http://127.0.0.1:8000", "state_interval": text}

    assert 0.5 == Settings.read(given, {}).state_interval


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("soon", "'soon' is not a duration such as 100ms, 5m, 1h or 30d"),
        ("2h", "2h is not from 1ms to 1h"),
        ("nan", "nan is not from 1ms to 1h"),
    ],
)
def test_a_wrong_duration_is_explained(text: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the limits, with their units."""
    assert 2 == main(["status", "--prometheus", "http://127.0.0.1:9", "--timeout", text])
    assert reason in capsys.readouterr().err
