"""Advice as people read it, 80 columns wide, as JSON, and as a fragment of config.pbtxt; and beside what came of it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

from triton_exporter.common.duration import in_words, measured_text, time_text
from triton_exporter.common.moments import hour_text, utc_text
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.advise.advice import Advice, Change, Range, apply
from triton_slo.advise.fit import ALIKE, LARGE_Z, Fit, Overload, play
from triton_slo.advise.measured import Configuration, Measured, total, totals
from triton_slo.amounts import digits, ratio

_WIDTH = 80
_COMPARED = 200
"""Requests since the change, with fewer of which nothing is compared."""


def document(advice: Sequence[Advice], at: float) -> dict[str, object]:
    """Return what `--json` writes: rates in requests a second, times in seconds; `at` is Unix time."""
    written = []
    for each in advice:
        whole = {**asdict(each), "holds": each.promise.holds, "needs_change": each.needs_change}
        whole["headroom"] = each.headroom and asdict(each.headroom)
        whole["changes"] = [{**asdict(one), "config_pbtxt": fragment(each, one)} for one in each.changes]
        written.append(whole)
    return {"at": at, "advice": written}


def text(advice: Advice) -> str:
    """Return the advice on one objective of one model version."""
    promise, fit, over = advice.promise, advice.fit, advice.overload
    name, objective = f"{advice.model} {advice.version}".strip(), f"{promise.slo}: {ratio(promise.target)}"
    lines = [f"{name}, {objective} {promise.verb} at most {time_text(promise.threshold)}"]
    if promise.good is not None:
        met = {True: "held", False: "was broken", None: "may or may not have held"}[promise.holds]
        share = f"about {ratio(promise.good)} (estimated) did in the last {in_words(promise.seconds)}"
        lines += row("past", f"the objective {met}: {share}")
    if over is not None:
        lines += row("overload", overload_text(over))
        if over.is_slowness and advice.changes:
            lines += row("", "find what made executions slower; the changes below only help until then")
    if advice.unknown:
        lines += row("UNKNOWN", f"{advice.text} ({advice.unknown})")
    if fit is None:
        return "\n".join(lines)
    on = "1 server" if fit.servers == 1 else f"{fit.servers} servers"
    window = f"in the {in_words(fit.seconds)} until {hour_text(fit.until, fit.until)}"
    busy = f"instances {fit.utilization:.0%} busy"
    lines += row("traffic", f"{rate(fit.rate)} requests/s {window}, on {on}, {busy}")
    if advice.breaks and advice.headroom:
        room = _span(advice.headroom, " times this traffic")
        lines += row("breaks", f"{_at(advice.breaks)}; headroom {room}")
    lines += row("assumes", _assumes(fit, advice.configuration or Configuration()))
    if fit.wait or fit.modelled_wait:
        told = f"mean wait {measured_text(fit.wait)} measured, {measured_text(fit.modelled_wait)} modelled (z {fit.z:.1f})"
        left = " outside of the overload" if over else ""
        dropped = f"; {fit.left_out:.0%} of the time left out as unlike the rest" if fit.left_out else ""
        lines += row("fit", f"{told}{left}, of {fit.executions:,.0f} executions{dropped}")
    if advice.asked is not None:
        lines += row("asked", _change(advice.asked))
    if advice.needs_change is False:
        lines += row("advice", "No change needed.")
    elif not advice.changes and not advice.unknown:
        lines += row("advice", "None of the changes that can be predicted helps.")
    for number, change in enumerate(advice.changes, 1):
        lines += row(f"change {number}", _change(change))
    snippet = next(filter(None, (fragment(advice, change) for change in advice.changes)), "")
    return "\n".join(lines + [f"\n{snippet}"] * bool(snippet))


def row(word: str, told: str) -> list[str]:
    """Return lines with a word in the left column."""
    left, under = f"  {word:<9} ", " " * 12
    wrap = textwrap.TextWrapper(_WIDTH, left, under, break_long_words=False, break_on_hyphens=False)
    return wrap.wrap(told)


def overload_text(over: Overload) -> str:
    """Say what came and is answered; or that executions take longer, where that is the reason."""
    since, until = hour_text(over.since, over.until), hour_text(over.until, over.until)
    came, traffic, ended = f"have come since {since}", "traffic is", ""
    if not over.lasts:
        came, traffic = f"came from {since} on", "traffic was"
        ended = f"; instances were busy with them until {until}"
    if over.is_slowness:
        slower = slower_text(over.took, over.took_before, since, "" if over.lasts else "on")
        return f"{slower}; {traffic} {'unchanged' if over.growth * ALIKE >= 1 else 'no higher'}{ended}"
    return f"{rate(over.rate)} requests/s {came}, its instances answer at most {rate(over.capacity)}/s{ended}"


def slower_text(took: float, before: float, since: str, until: str) -> str:
    """Say how many seconds an execution takes, 0 where none succeeds, or took, and before; `until` is empty where it does."""
    when = f"from {since} {until}" if until else f"since {since}"
    if not took:
        verb = "succeeded" if until else "has succeeded"
        return f"no execution {verb} {when}, one took {measured_text(before)} before"
    return f"an execution {'took' if until else 'takes'} {measured_text(took)} {when}, {measured_text(before)} before"


def _at(breaks: Range) -> str:
    return f"at {_span(breaks, ' requests/s')}" if breaks.most else "at any traffic"


def _span(span: Range, unit: str) -> str:
    if span.least is None:
        return f"{rate(span.most)}{unit} or less"
    limits = f"{rate(span.least)} to {rate(span.most)}"
    return f"{limits}{unit}" if span.estimate is None else f"about {rate(span.estimate)}{unit} ({limits})"


def rate(requests: float) -> str:
    """Return a rate in three digits, the rest zeros: 0.46, 12, 47,300,000."""
    return f"{float(f'{requests:.3g}'):,.12g}"


def _assumes(fit: Fit, configuration: Configuration) -> str:
    fixed, each = fit.service.fixed, fit.service.each
    parts = [measured_text(fixed)] * (fixed > 0) + [f"{measured_text(each)} a request"] * (each > 0)
    come = "one by one" if fit.burst < 1.05 else f"{digits(fit.burst)} at a time"
    took = f"an execution takes {' + '.join(parts)}, cv2 {fit.service.cv2:.2f}"
    alone = "instances share no lock, and call" if fit.instances > 1 else "it calls"
    told = f"{took}; requests come {come}, independently; {alone} no other model"
    if configuration.setting(fit.rows).max_batch == 1:
        return told
    return f"{told}; batches over {digits(fit.batch)} (the largest mean of a step) take longer in proportion"


def _change(change: Change) -> str:
    told = f"{change.name}: breaks {_at(change.breaks)}"
    if change.wait_p99 is not None:
        told += f"; 99 % of today's requests would wait at most {measured_text(change.wait_p99)}"
    refused = f"; {change.refused:.1%} would be refused" if change.refused else ""
    return f"{told}{refused}; {change.note}".removesuffix("; ")


def fragment(advice: Advice, change: Change) -> str:
    """Return what to write into config.pbtxt, with the prediction as a comment; empty where it is no configuration."""
    now = advice.configuration or Configuration()
    then, [name] = apply(now, change.what), change.what
    delay = f" max_queue_delay_microseconds: {1e6 * then.delay:.0f}" if then.delay else ""
    limit = f" default_queue_policy {{ max_queue_size: {then.limit} }}" if then.limit else ""
    batcher = f"dynamic_batching {{{delay}{limit} }}" if then.dynamic_batching else "# no dynamic_batching"
    line = {
        "instances": f"instance_group [{{ kind: KIND_{now.kind.upper()} count: {then.instances // now.gpus} }}]",
        "max_batch_size": f"max_batch_size: {then.max_batch_size}",
        "batching": batcher,
        "delay_ms": batcher,
    }.get(name)
    without = f"; without, {_at(advice.breaks)}" if advice.breaks else ""
    predicted = f"tritonwatch advise: {advice.promise.slo} breaks {_at(change.breaks)}{without}"
    comment = textwrap.wrap(predicted, _WIDTH, initial_indent="# ", subsequent_indent="# ")
    return "\n".join([*comment, line]) if line else ""


@dataclass(frozen=True, slots=True)
class Saved:
    """What was predicted at Unix time `at`."""

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)
    at: float
    advice: Sequence[Advice]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prediction beside what came; `open` says why there is nothing to compare yet."""

    model: str
    version: str
    slo: str
    predicted_at: float
    changed: str = ""
    open: str = ""
    rate: float = 0.0
    wait: float = 0.0
    predicted_wait: float = 0.0
    came_true: bool | None = None


def read(place: str, text: str) -> Saved:
    """Return the predictions of a file. Raises ProblemsError."""
    try:
        saved = TypeAdapter(Saved).validate_json(text)
        utc_text(saved.at)
        for fit in filter(None, (each.fit for each in saved.advice)):
            least, most = (*astuple(fit.service), fit.overhead), (fit.rows, fit.burst)
            if min(least) < 0 or min(most) < 1 or max(least + most) > 1e6:
                raise ValueError(fit)
    except (ValueError, ArithmeticError, OSError) as error:
        fix = "name a file with the output of `tritonwatch advise --json`"
        raise ProblemsError(Problem(place, "is not a file of predictions", fix), code=1) from error
    return saved


def compare(advice: Advice, at: float, measured: Measured) -> Comparison:
    """Return a prediction, made at Unix time `at`, beside what came since."""
    promise, before, now, fit = advice.promise, advice.configuration, measured.configuration, advice.fit
    found = Comparison(advice.model, advice.version, promise.slo, at)
    if fit is None or before is None:
        return replace(found, open=f"nothing was predicted: {advice.text} ({advice.unknown})")
    if now is None or now == before:
        return replace(found, open="the configuration is as it was" if now else "the model is not ready")
    was = asdict(before)
    changed = [f"{name} {to}, was {was[name]}" for name, to in asdict(now).items() if to != was[name]]
    found = replace(found, changed="; ".join(changed))
    steps = [step for step in measured.steps if step.requests and step.at - step.seconds >= at]
    sums, servers = total(steps), len({step.server for step in steps})
    if sums.requests < _COMPARED:
        return replace(found, open=f"{sums.requests:.0f} requests since the change; {_COMPARED} are needed")
    played = play(now.setting(fit.rows), steps, fit.service, fit.burst)
    wait, predicted = played.wait, played.modelled_wait
    near = abs(wait - predicted) <= max(0.1 * promise.threshold, 0.25 * predicted)
    came_true = near or (abs(played.z) <= LARGE_Z and wait <= 2 * predicted)
    minutes = totals(steps, lambda each: each.at // 60)
    rates = sorted(sums.rate for sums in minutes)
    chance = 2 * LARGE_Z * (fit.burst * sums.rate / min(sums.seconds for sums in minutes)) ** 0.5
    # Where the rates of minutes differ by more than a quarter, waits prove no prediction wrong.
    if not came_true and rates[-1] - rates[0] > max(sums.rate / 4, chance):
        told = f"cannot be judged: the rate varied from {rate(rates[0] * servers)} to {rate(rates[-1] * servers)} requests/s"
        means = f"mean wait {measured_text(wait)}, predicted {measured_text(predicted)}"
        return replace(found, open=f"{told}; {means}")
    return replace(found, rate=sums.rate * servers, wait=wait, predicted_wait=predicted, came_true=came_true)


def checked_text(found: Comparison) -> str:
    """Return a comparison as people read it."""
    lines = [f"{found.model} {found.version}, {found.slo}: predicted {utc_text(found.predicted_at)}"]
    lines += row("changed", found.changed)
    if found.open:
        return "\n".join(lines + row("open", found.open))
    measured, predicted = measured_text(found.wait), measured_text(found.predicted_wait)
    lines += row("wait", f"mean {measured} at {rate(found.rate)} requests/s, predicted {predicted}")
    return "\n".join(lines + row("verdict", "as predicted" if found.came_true else "not as predicted"))
