"""Test a Prometheus that converts classic histograms to native ones, and so lacks the series of the rules."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from support import history
from support.loopback import answering
from support.promtool import evaluated
from support.tools import NEXT, promtools
from support.waiting import eventually
from triton_alerts.catalogue.llm import VLLM
from triton_alerts.rules import rule
from triton_exporter.catalogue import llm, state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.cli import main

OBJECTIVES = """
objectives:
  - {name: latency, target: 99%, indicator: {kind: latency, threshold: 50ms}, alerting: {enabled: false}}
  - {name: queue, target: 99%, indicator: {kind: queue, threshold: 50ms}, alerting: {enabled: false}}
"""
WHO = 'model="m",version="1"'
SLOW = 0.1
CONVERTED = {"convert_classic_histograms_to_nhcb": True}
CLASSIC_TOO = {"always_scrape_classic_histograms": True}
FEATURE = "--enable-feature=native-histograms"
MODES: dict[str, tuple[dict[str, bool], tuple[str, ...]]] = {
    "classic": ({}, ()),
    "both": (CONVERTED | CLASSIC_TOO, (FEATURE,)),
    "converted": (CONVERTED, (FEATURE,)),
    "lost": (CONVERTED, ()),
}
"""Settings of a Prometheus 3.5 and its flags; without the feature it stores neither form."""
STORED = ("classic", "both")


def _page(requests: float) -> str:
    """Return what the exporter shows of a model with one slow request in ten."""
    who, whole = WHO, int(requests)
    lines = [f"{triton.REQUEST_SUCCESS}{{{who}}} {whole}"]
    signals = (
        ("request", state.REQUEST_DURATION, triton.REQUEST_DURATION_US),
        ("queue", state.QUEUE_DURATION, triton.QUEUE_DURATION_US),
    )
    for signal, histogram, sums in signals:
        lines += [
            f"# TYPE {histogram} histogram",
            f'{histogram.bucket}{{{who},le="0.05"}} {whole - int(requests * SLOW)}',
            f'{histogram.bucket}{{{who},le="+Inf"}} {whole}',
            f"{histogram.count}{{{who}}} {whole}",
            f"{histogram.sum}{{{who}}} {requests * 0.02}",
            f'{state.DISTRIBUTION_SOURCE}{{{who},signal="{signal}",source="histogram"}} 1',
            f"{sums}{{{who}}} {whole * 20_000}",
        ]
    lines += [f"# TYPE {llm.GENERATION_TOKENS} counter", f"{llm.GENERATION_TOKENS}{{{WHO}}} {whole}"]
    for tokens in (llm.FIRST_TOKEN, llm.INTER_TOKEN):
        lines += [
            f"# TYPE {tokens} histogram",
            *(
                f'{tokens.bucket}{{{WHO},le="{le}"}} {n}'
                for le, n in (("1.0", 0), ("5.0", whole), ("+Inf", whole))
            ),
            f"{tokens.count}{{{WHO}}} {whole}",
            f"{tokens.sum}{{{WHO}}} {whole * 4}",
        ]
    return "\n".join(lines) + "\n"


UNMEASURED = f'max by ({names.SLO}, {names.REASON}) ({names.ALERTS}{{alertname="{names.UNMEASURED_ALERT}"}})'


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Yield a Prometheus of each mode, with the generated rules, by mode."""
    server = NEXT / "prometheus"
    if not server.exists():
        pytest.skip("no Prometheus 3 is here; `make tools-next` fetches it where apt can")
    objectives = read([("o.yaml", OBJECTIVES)]).objectives
    options = Options(time_scale=0.01, scrape_interval_seconds=1)
    rules = {
        artifact.name: artifact.text
        for artifact in artifacts(objectives, options)
        if artifact.part == "rules"
    }
    began = time.monotonic()
    with ExitStack() as stack:
        exporter = stack.enter_context(
            answering(lambda request: request.reply(_page(100 * (time.monotonic() - began))))
        )
        yield {
            mode: stack.enter_context(
                history.serve(
                    "",
                    tmp_path_factory.mktemp(mode),
                    rules=rules,
                    scrape=exporter.removeprefix("http://"),
                    server=server,
                    settings=settings,
                    flags=flags,
                )
            )
            for mode, (settings, flags) in MODES.items()
        }


def _values(url: str, query: str) -> list[tuple[str, float]]:
    """Return the values of a query by objective."""
    with Prometheus(Access(url)) as prometheus:
        instant = prometheus.instant(query)
    return sorted((sample.labels[names.SLO], sample.value) for sample in instant)


def _of_both(url: str, query: str) -> list[tuple[str, float]]:
    """Return the values of a query by objective, as soon as both objectives have one."""

    def samples() -> list[tuple[str, float]]:
        values = _values(url, query)
        return values if len(values) == 2 else []

    return eventually(samples, f"no {query}")


@pytest.mark.real
@pytest.mark.parametrize("mode", MODES)
def test_the_share_is_true_or_unknown(servers: Mapping[str, str], mode: str) -> None:
    """Where Prometheus stores the histogram, its share is the same; else the objective is unknown, by a reason."""
    url = servers[mode]
    unknown = f'max by ({names.SLO}) ({names.ALERTS}{{{names.REASON}="no_histogram"}})'
    if mode in STORED:
        shares = partial(_values, url, names.sli_error("1h"))
        # Of the few requests of its first seconds the share is another one.
        near = pytest.approx(SLOW, abs=0.03)
        wanted: object = [("latency", near), ("queue", near)]
        eventually(lambda: wanted == shares(), lambda: str(shares()))
        assert [] == _values(url, unknown)
    else:
        _of_both(url, unknown)
        _of_both(url, f'ALERTS{{alertname="{names.UNMEASURED_ALERT}", alertstate="firing"}}')

        assert [] == _values(url, names.sli_error("5m"))


@pytest.mark.real
@pytest.mark.parametrize("mode", MODES)
def test_check_and_status_name_the_setting(
    servers: Mapping[str, str], mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both show what to change in the scrape job, and nothing of it where the histogram is stored."""
    (tmp_path / "o.yaml").write_text(OBJECTIVES)
    stored = mode in STORED
    _of_both(servers[mode], names.sli_error("1h") if stored else UNMEASURED)

    checked = main(
        ["check", str(tmp_path / "o.yaml"), "--prometheus", servers[mode], "--scrape-interval", "1"]
    )
    check = capsys.readouterr()
    main(["status", "--prometheus", servers[mode]])
    status = capsys.readouterr()

    assert checked == (0 if stored else 1)
    for shown in (check.err, status.out):
        assert stored == ("convert_classic_histograms_to_nhcb: false" not in shown)
        assert stored == ("always_scrape_classic_histograms: true" not in shown)


@pytest.mark.real
@pytest.mark.parametrize("mode", MODES)
def test_an_alert_on_a_histogram_fires_in_whichever_form_it_is_stored(
    servers: Mapping[str, str], mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first token takes 5 s; where Prometheus stores neither form, `check` names the alert and the setting."""
    [alert] = [rule for rule in VLLM if rule.name == "LlmFirstTokenSlow"]
    expr = rule(alert, Options(time_scale=0.01, scrape_interval_seconds=1)).expr
    (tmp_path / "o.yaml").write_text("objectives: [{name: ready, target: 99%, indicator: readiness}]")
    _of_both(servers[mode], names.sli_error("1h") if mode in STORED else UNMEASURED)

    with Prometheus(Access(servers[mode])) as prometheus:
        if mode != "lost":
            (sample,) = eventually(lambda: prometheus.instant(expr), "no quantile")
            assert "m" == sample.labels["model"]
            assert pytest.approx(4.8, abs=0.3) == sample.value
        assert (mode == "lost") == (not prometheus.instant(expr))
    main(["check", str(tmp_path / "o.yaml"), "--prometheus", servers[mode]])

    assert (mode == "lost") == ("note: LlmFirstTokenSlow: " in capsys.readouterr().err)


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
def test_a_missing_bucket_or_histogram_is_known_by_its_reason(tool: Path, tmp_path: Path) -> None:
    """Prometheus 2.42 reports both, and a first response whose histogram is stored under its plain name."""
    first = "{name: first, target: 99%, indicator: {kind: first_response, threshold: 500ms}}"
    [latency, _, response] = read([("o.yaml", f"{OBJECTIVES}  - {first}\n")]).objectives
    fed = 'signal="request",source="trace"'
    cases = [
        (latency, {f"{state.DISTRIBUTION_SOURCE}{{{WHO},{fed}}}": "1x20"}, "no_histogram"),
        (latency, {f"{state.REQUEST_DURATION.count}{{{WHO}}}": "0+9x20"}, "no_bucket"),
        (response, {f"{triton.FIRST_RESPONSE_MS}{{{WHO}}}": "1x20"}, "no_histogram"),
    ]
    asked = [(f"max by ({names.REASON}) ({UNMEASURED})", 120.0)]
    for objective, series, reason in cases:
        [rules] = [
            artifact.text
            for artifact in artifacts([objective], Options())
            if artifact.name == f"slo-{objective.name}.yml"
        ]

        [answer] = evaluated(tool, tmp_path, rules, series, asked, interval=15, evaluation=15)

        assert [({names.REASON: reason}, 1.0)] == answer
