"""Advice as people read it, 80 columns wide, as JSON, and as a fragment of config.pbtxt."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from triton_exporter.common.duration import measured_text, time_text
from triton_exporter.common.moments import utc_text
from triton_slo.advise.advice import HEAVY_CV2, Advice, Change, Range, apply
from triton_slo.advise.check import Comparison
from triton_slo.advise.fit import Fit
from triton_slo.advise.measured import Configuration
from triton_slo.amounts import ratio

_WIDTH = 80
_VERBS = {"queue": "wait", "latency": "take"}


def document(advice: Sequence[Advice]) -> dict[str, object]:
    """Return what `--json` writes; rates are in requests a second, times in seconds."""
    return {"advice": [_as_json(each) for each in advice]}


def _as_json(advice: Advice) -> dict[str, object]:
    whole = asdict(advice)
    promise, configuration = whole.pop("promise"), whole.pop("configuration")
    fragments = {change.name: fragment(advice, change) for change in advice.changes}
    for change in whole["changes"]:
        change["config_pbtxt"] = fragments[change["name"]]
    headroom = None if advice.headroom is None else asdict(advice.headroom)
    answers = {"holds": advice.holds, "headroom": headroom, "needs_change": advice.needs_change}
    return {**promise, **answers, **whole, "configuration": configuration}


def text(advice: Advice) -> str:
    """Return the advice on one objective of one model version."""
    promise = advice.promise
    verb = _VERBS[promise.signal]
    name = f"{advice.model} {advice.version}".strip()
    lines = [f"{name}, {promise.slo}: {ratio(promise.target)} {verb} at most {time_text(promise.threshold)}"]
    if promise.good is not None:
        met = "held" if advice.holds else "was broken"
        lines += _row("now", f"the objective {met}: {ratio(promise.good)} did")
    if advice.unknown:
        lines += _row("UNKNOWN", f"{advice.text} ({advice.unknown})")
    if advice.fit is None or advice.breaks is None:
        return "\n".join(lines)
    fit, breaks, room = advice.fit, advice.breaks, advice.breaks.times(1 / advice.fit.rate)
    times = (
        f"{room.estimate:.3g} times (at least {room.least:.3g})"
        if room.estimate
        else f"at most {room.most:.3g} times"
    )
    if room.least and not room.estimate:
        times = f"{room.least:.3g} to {room.most:.3g} times"
    on = "1 server" if fit.servers == 1 else f"{fit.servers} servers"
    dropped = f"; {fit.left_out:.0%} of the time left out as unlike the rest" if fit.left_out else ""
    lines += _row("traffic", f"{rate(fit.rate)} requests/s on {on}, instances {fit.utilization:.0%} busy")
    lines += _row("breaks", f"{_at(breaks)} requests/s: {times} the traffic of now")
    lines += _row("assumes", _assumes(fit))
    lines += _row(
        "fit",
        f"mean wait {measured_text(fit.wait)} measured, {measured_text(fit.modelled_wait)} modelled "
        f"(z {fit.z:.1f}), of {fit.executions:,.0f} executions{dropped}",
    )
    if advice.asked is not None:
        lines += _row("asked", _change(advice.asked))
    if not advice.needs_change:
        lines += _row("advice", "No change needed.")
    elif advice.changes:
        for number, change in enumerate(advice.changes, 1):
            lines += _row(f"change {number}", _change(change))
        snippets = filter(None, (fragment(advice, change) for change in advice.changes))
        if first := next(snippets, ""):
            lines += ["", first.rstrip()]
    elif not advice.unknown:
        lines += _row("advice", "None of the changes that can be predicted helps.")
    return "\n".join(lines)


def _row(word: str, told: str) -> list[str]:
    return textwrap.wrap(
        told,
        _WIDTH,
        initial_indent=f"  {word:<9} ",
        subsequent_indent=" " * 12,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _at(breaks: Range) -> str:
    if breaks.least is None:
        return f"at most at {rate(breaks.most)}"
    if breaks.estimate is None:
        return f"between {rate(breaks.least)} and {rate(breaks.most)}"
    return f"at about {rate(breaks.estimate)} ({rate(breaks.least)} to {rate(breaks.most)})"


def rate(requests: float | None) -> str:
    """Return a rate in three digits."""
    return "-" if requests is None else f"{requests:.0f}" if requests >= 100 else f"{requests:.3g}"


def _assumes(fit: Fit) -> str:
    service = fit.service
    parts = [measured_text(service.fixed)] if service.fixed else []
    parts += [f"{measured_text(service.each)} a request"] if service.each else []
    tail = ", a tail that counters do not show" if service.cv2 > HEAVY_CV2 else ""
    come = "one by one" if fit.burst < 1.05 else f"{fit.burst:.2g} at a time"
    took = f"an execution takes {' + '.join(parts)}, cv2 {service.cv2:.2g}{tail}"
    return f"{took}; requests come {come}, independently"


def _change(change: Change) -> str:
    wait = (
        "" if change.wait_p99 is None else f", p99 of waits at this traffic {measured_text(change.wait_p99)}"
    )
    refused = f", {change.refused:.1%} refused" if change.refused else ""
    note = f"; {change.note}" if change.note else ""
    return f"{change.name}: breaks {_at(change.breaks)}{wait}{refused}{note}"


def fragment(advice: Advice, change: Change) -> str:
    """Return what to write into config.pbtxt, with the prediction as a comment; empty where it is no configuration."""
    lines = list(_fields(advice.configuration, change.what)) if advice.configuration is not None else []
    if not lines:
        return ""
    predicted = f"{advice.promise.slo} breaks {_at(change.breaks)} requests/s"
    now = f" ({_at(advice.breaks)} without)" if advice.breaks is not None else ""
    comment = textwrap.wrap(f"tritonwatch advise: {predicted}{now}", _WIDTH - 2)
    return "\n".join([*(f"# {line}" for line in comment), *lines]) + "\n"


def _fields(now: Configuration, what: Mapping[str, float]) -> Iterator[str]:
    if "instances" in what:
        count = what["instances"] / now.gpus
        yield f"instance_group [{{ kind: KIND_{now.kind.upper()} count: {count:.0f} }}]"
    if "max_batch_size" in what:
        yield f"max_batch_size: {what['max_batch_size']:.0f}"
    if what.keys() & {"batching", "delay_ms", "max_queue_size"}:
        then = apply(now, what)
        delay = f" max_queue_delay_microseconds: {1e6 * then.delay:.0f}" if then.delay else ""
        limit = f" default_queue_policy {{ max_queue_size: {then.limit} }}" if then.limit else ""
        yield f"dynamic_batching {{{delay}{limit} }}" if then.dynamic_batching else "# no dynamic_batching"


def checked_document(comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Return what `--check --json` writes."""
    return {"checked": [{**asdict(each), "came_true": each.came_true} for each in comparisons]}


def checked_text(comparison: Comparison) -> str:
    """Return a prediction beside what came."""
    made, promise = comparison.prediction, comparison.prediction.promise
    lines = [f"{made.model} {made.version}, {promise.slo}: predicted {utc_text(made.at)}"]
    before, after = asdict(made.configuration), asdict(comparison.configuration)
    if changes := [
        f"{name} {value}, was {before[name]}" for name, value in after.items() if value != before[name]
    ]:
        lines += _row("changed", "; ".join(changes))
    if comparison.open:
        return "\n".join(lines + _row("open", comparison.open))
    measured, predicted = measured_text(comparison.wait), measured_text(comparison.predicted_wait)
    lines += _row("wait", f"mean {measured} at {rate(comparison.rate)} requests/s, predicted {predicted}")
    if comparison.good is not None:
        lines += _row("good", f"{ratio(comparison.good)}, predicted {ratio(comparison.predicted_good)}")
    if comparison.breaks is not None:
        lines += _row("breaks", f"predicted {_at(comparison.breaks)} requests/s")
    return "\n".join(lines + _row("verdict", "as predicted" if comparison.came_true else "not as predicted"))
