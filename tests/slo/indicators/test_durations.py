"""Test thresholds between two milliseconds of binary arithmetic: the rules name the bucket that exists."""

from __future__ import annotations

import pytest
import yaml

from triton_exporter.app.settings import Settings
from triton_exporter.common.duration import in_words, measured_text, parse_seconds, time_text
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


@pytest.mark.parametrize("text", ["0.25ms", "2.5ms", "500ms", "1s", "2.5s", "90s", "2m", "1h", "1d"])
def test_a_threshold_is_written_as_objectives_do(text: str) -> None:
    """None is rounded, and each can be read again."""
    assert text == time_text(parse_seconds(text))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0ms"), (0.00035, "0.35ms"), (0.012512, "12.5ms"), (0.9996, "1s"), (93.44, "93.4s")],
)
def test_a_measured_time_has_three_digits(seconds: float | None, text: str) -> None:
    """In the form of a threshold, so that the two compare."""
    assert text == measured_text(seconds)


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (59.7, "1m"), (200, "3m 20s"), (3600, "1h"), (11_100, "3h 5m"), (187_200, "2d 4h")],
)
def test_a_length_of_time_is_written_in_its_two_largest_units(seconds: float, text: str) -> None:
    """The same on the command line, on web pages and in Slack; a clock that was set back gives no minus."""
    assert text == in_words(seconds)
