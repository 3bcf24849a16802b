"""Rules that record traffic once, so that no panel has to read every model of every server again.

A panel over 1,000 models on 10 servers would read some 40,000 series four times for each of its points; these
make it 1,000, or 10. A graph of the worst of 800 error budgets reads one series an objective
(tests/bench/bench_boards.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from triton_dashboards import objectives
from triton_dashboards.query import NOT_CANCELED, total
from triton_exporter.catalogue import Metric, gpu, models, state, triton
from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.artifact import Group, Options, Rule, render
from triton_slo.promql import Matchers, parse_selector

_WINDOW_SECONDS = 120
_JOB_LABELS = ("cluster", "job")


def groups(options: Options) -> tuple[Group, ...]:
    return (
        Group("triton-dashboards-ensemble", tuple(_ensembles(options))),
        Group(
            "triton-dashboards-model",
            (*_traffic(names.model_traffic, "model", options), _utilization_caused(options)),
        ),
        Group(
            "triton-dashboards-instance",
            (*_traffic(names.server_traffic, "instance", options), *_loads(options)),
        ),
        Group("triton-dashboards-objective", tuple(objectives.rules(options))),
    )


def _traffic(name: Callable[[str], str], level: str, options: Options) -> Iterator[Rule]:
    for what in names.TRAFFIC if level == "model" else names.STEP_TRAFFIC:
        expr = _reported(what, options)
        waits = what in ("queue_seconds", "pending")
        if level == "model" and waits:
            # An ensemble has no queue; its requests wait in those of its steps.
            expr += f" or {_selected(names.step_traffic(what), options)}"
        elif level == "instance" and not waits:
            # A client's request counts at the ensemble, and not again at its steps.
            expr += f" or -{_selected(names.step_traffic(what), options)}"
        yield Rule(record=name(what), expr=total(expr, *_recorded_labels(options, level)))


def _ensembles(options: Options) -> Iterator[Rule]:
    """Yield the part of each step's traffic that each ensemble causes."""
    server = _recorded_labels(options, "instance")
    by_model, by_step = (*server, "model"), (*server, "step_model")
    steps = _selected(models.ENSEMBLE_STEP, options)

    def of_step(figure: str) -> str:
        return total(_relabel(figure, to="step_model", source="model"), *by_step)

    other = _rate(triton.REQUEST_FAILURE, options, 'reason="OTHER"')
    yield Rule(
        record=names.COUNTED_TWICE,
        expr=f"{total(f'{other} and on ({_names(by_model)}) {steps}', *by_model)} / 2",
        # Triton counts an ensemble under version 1; `counted` keeps the series apart from Triton's own in `or`.
        labels={"version": "1", "reason": "OTHER", "counted": "twice"},
    )
    step_models = f"group by ({_names(by_step)}) ({steps})"
    members = f"({steps} or {_relabel(step_models, to='model', source='step_model')})"
    for what in names.STEP_TRAFFIC:
        reported = total(_reported(what, options), *by_model)
        yield Rule(
            record=names.ensemble_traffic(what), expr=f"{reported} and on ({_names(by_model)}) {members}"
        )
    requests, failures = (
        _selected(names.ensemble_traffic(what), options) for what in ("requests", "failures")
    )
    asked = _selected(names.STEPS_ASKED, options)
    each_step = f"group by ({_names((*by_model, 'position', 'step_model'))}) ({steps})"
    times = f"count by ({_names((*by_model, 'step_model'))}) ({each_step})"
    of_ensemble, on_step = (f"on ({_names(by)}) group_left ()" for by in (by_model, by_step))
    yield Rule(record=names.STEPS_ASKED, expr=f"{times} * {of_ensemble} {requests}")
    version = {"version": "1"}
    # A step after one that failed was not asked: at most what it reports.
    yield Rule(
        record=names.step_traffic("requests"),
        expr=f"{asked} * {on_step} clamp_max({of_step(requests)} / ({total(asked, *by_step)} > 0), 1)",
        labels=version,
    )
    failed = f"({asked} >= bool 0) * {of_ensemble} {failures}"
    yield Rule(
        record=names.step_traffic("failures"),
        expr=f"{failed} * {on_step} clamp_max({of_step(failures)} / ({total(failed, *by_step)} > 0), 1)",
        labels=version,
    )
    for what in ("request_seconds", "queue_seconds", "pending"):
        each = f"({of_step(_selected(names.ensemble_traffic(what), options))} / ({of_step(requests)} > 0))"
        yield Rule(
            record=names.step_traffic(what),
            expr=f"{_selected(names.step_traffic('requests'), options)} * {on_step} {each}",
            labels=version,
        )


def _relabel(expr: str, to: str, source: str) -> str:
    return f'label_replace({expr}, "{to}", "$1", "{source}", "(.+)")'


def _names(labels: Iterable[str]) -> str:
    return ", ".join(labels)


def _utilization_caused(options: Options) -> Rule:
    """Return what each model causes on all GPUs: of 200 models on 30 servers a graph would read 6,000 series."""
    by = _recorded_labels(options, "model")
    return Rule(record=names.UTILIZATION_CAUSED, expr=total(_selected(gpu.MODEL_UTILIZATION, options), *by))


def _loads(options: Options) -> Iterator[Rule]:
    by = _recorded_labels(options, "instance")
    yield Rule(record=names.MODELS_IN_STATE, expr=total(_selected(state.MODEL_STATE, options), *by, "state"))
    failed = _over("increase", state.MODEL_LOAD_FAILURES, options)
    yield Rule(record=names.FAILED_LOADS, expr=f"{total(failed, *by, 'model', 'reason')} > 0")
    ready = _selected(state.MODEL_READY, options)
    serving = f"max by ({', '.join(by)}, model, version)"
    before = f"{serving} ({ready} offset {window(options)})"
    # The first samples of a server are no event: its models may have been ready for long.
    watched = f"on ({', '.join(by)}) {_selected(state.SERVER_LIVE, options)} offset {window(options)}"
    yield Rule(record=names.BECAME_READY, expr=f"{serving} ({ready}) == 1 unless {before} == 1 and {watched}")


def _recorded_labels(options: Options, level: str) -> tuple[str, ...]:
    """Return the labels of a recorded series: those of its level, and those of the fleet's own selector."""
    matchers, _ = parse_selector(options.selector)
    selecting = (label for label, _, _ in Matchers(matchers).split)
    return tuple(dict.fromkeys((*_JOB_LABELS, level, *selecting)))


def rules_text(options: Options) -> str:
    return render(groups(options), "triton-dashboards", options.format)


def _reported(what: str, options: Options) -> str:
    """Return what Triton reports of a figure. Times are seconds per second; Triton counts microseconds."""
    failures = f"{_rate(triton.REQUEST_FAILURE, options, NOT_CANCELED)} or -{_selected(names.COUNTED_TWICE, options)}"
    return {
        "requests": f"{_rate(triton.REQUEST_SUCCESS, options)} or {failures}",
        "failures": failures,
        "request_seconds": f"{_rate(triton.REQUEST_DURATION_US, options)} / 1e6",
        "queue_seconds": f"{_rate(triton.QUEUE_DURATION_US, options)} / 1e6",
        "inferences": _rate(triton.INFERENCE_COUNT, options),
        "executions": _rate(triton.EXEC_COUNT, options),
        "pending": _selected(triton.PENDING_REQUESTS, options),
    }[what]


def _rate(metric: Metric, options: Options, *matchers: str) -> str:
    return _over("rate", metric, options, *matchers)


def _over(function: str, metric: Metric, options: Options, *matchers: str) -> str:
    return f"{function}({_selected(metric, options, *matchers)}[{window(options)}])"


def window_seconds(options: Options) -> float:
    """Return the window of what is recorded: two minutes, and at least four scrapes."""
    return max(_WINDOW_SECONDS * options.time_scale, 4 * options.scrape_interval_seconds)


def window(options: Options, share: float = 1) -> str:
    """Return this window, or a share of it, as PromQL."""
    return duration_text(share * window_seconds(options))


def _selected(metric: Metric | str, options: Options, *matchers: str) -> str:
    inside = ", ".join((*matchers, *([options.selector] if options.selector else [])))
    return f"{metric}{{{inside}}}" if inside else str(metric)
