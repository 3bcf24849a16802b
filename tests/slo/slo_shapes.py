"""Write rules in the shapes that Sloth and Pyrra emit, for one objective on Triton's request counters.

Shapes: slok/sloth internal/plugin/slo/core (0.16) and pyrra-dev/pyrra slo/rules.go (0.10), grouped by model and
version. Written from their documented form; neither tool's code is used.
"""

from __future__ import annotations

import json

from triton_exporter.catalogue import triton
from triton_exporter.common.duration import parse_seconds

GROUP = "model, version"
_FAILED = f'{triton.REQUEST_FAILURE}{{reason!="CANCELED"}}'
_ALL = f'{{__name__=~"{triton.REQUEST_SUCCESS}|{triton.REQUEST_FAILURE}", reason!="CANCELED"}}'


def _ratio(window: str) -> str:
    return f"sum by ({GROUP}) (rate({_FAILED}[{window}])) / sum by ({GROUP}) (rate({_ALL}[{window}]))"


def _document(rules: list[dict[str, object]], name: str) -> str:
    return json.dumps({"groups": [{"name": name, "rules": rules}]}, indent=1)


def sloth(target: float = 0.999) -> str:
    """Seven ratios, the period as a mean of 5m ratios, page and ticket of two pairs each, no `for`."""
    budget = round(1 - target, 12)
    windows = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
    name = "sloth:sli_error:ratio_rate{}".format
    rules: list[dict[str, object]] = [
        {"record": name(w), "expr": _ratio(w), "labels": {"sloth_window": w}} for w in windows
    ]
    five = name("5m")
    mean = f"sum_over_time({five}[30d]) / ignoring (sloth_window) count_over_time({five}[30d])"
    rules.append({"record": name("30d"), "expr": mean, "labels": {"sloth_window": "30d"}})
    rules.append({"record": "sloth:budget_remaining", "expr": f"1 - {name('30d')} / {budget!r}"})

    def pair(short: str, long: str, factor: float) -> str:
        sides = (f"max({name(w)} > {factor} * {budget!r}) without (sloth_window)" for w in (short, long))
        return "(" + " and ".join(sides) + ")"

    for severity, pairs in (
        ("critical", (("5m", "1h", 14.4), ("30m", "6h", 6.0))),
        ("warning", (("2h", "1d", 3.0), ("6h", "3d", 1.0))),
    ):
        expr = " or ".join(pair(*windows) for windows in pairs)
        rules.append({"alert": "Sloth", "expr": expr, "labels": {"severity": severity}})
    return _document(rules, "sloth")


def sloth_as_named(target: float = 0.999) -> str:
    """Record one Sloth objective under Sloth's own names and labels; several names are ours, too."""
    budget = round(1 - target, 12)
    own = {"sloth_id": "triton-errors", "sloth_service": "triton", "sloth_slo": "errors"}
    name = "slo:sli_error:ratio_rate{}".format
    rules: list[dict[str, object]] = [
        {"record": name(w), "expr": _ratio(w), "labels": {**own, "sloth_window": w}}
        for w in ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
    ]
    mine = '{sloth_id="triton-errors", sloth_window="%s"}'
    five = f"{name('5m')}{mine % '5m'}"
    mean = f"sum_over_time({five}[30d]) / ignoring (sloth_window) count_over_time({five}[30d])"
    rules.append({"record": name("30d"), "expr": mean, "labels": {**own, "sloth_window": "30d"}})
    current, period = "slo:current_burn_rate:ratio", "slo:period_burn_rate:ratio"
    for record, expr in (
        ("slo:objective:ratio", f"vector({target!r})"),
        ("slo:error_budget:ratio", f"vector({budget!r})"),
        ("slo:time_period:days", "vector(30)"),
        (current, f"{five} / {budget!r}"),
        (period, f"{name('30d')}{mine % '30d'} / {budget!r}"),
        ("slo:period_error_budget_remaining:ratio", f'1 - {period}{{sloth_id="triton-errors"}}'),
        ("sloth_slo_info", "vector(1)"),
    ):
        rules.append({"record": record, "expr": expr, "labels": own})
    return _document(rules, "sloth-slo-sli-recordings-triton-errors")


def pyrra(target: float = 0.999) -> str:
    """Windows as Pyrra derives them for 30d, four alerts with `for`, factors 14, 7, 2, 1, and absent()."""
    budget = round(1 - target, 12)
    name = "pyrra:burnrate{}".format
    pairs = (
        ("5m", "1h4m", 14, "2m", "critical"),
        ("32m", "6h26m", 7, "16m", "critical"),
        ("2h9m", "1d1h43m", 2, "1h4m", "warning"),
        ("6h26m", "4d6h51m", 1, "3h13m", "warning"),
    )
    windows = sorted({window for short, long, *_ in pairs for window in (short, long)}, key=parse_seconds)
    rules: list[dict[str, object]] = [{"record": name(w), "expr": _ratio(w)} for w in windows]
    failed, every = (f"sum by ({GROUP}) (increase({s}[30d]))" for s in (_FAILED, _ALL))
    rules.append(
        {"record": "pyrra:budget_remaining", "expr": f"1 - ({failed} or 0 * {every}) / {every} / {budget!r}"}
    )
    for short, long, factor, pending, severity in pairs:
        expr = f"{name(short)} > ({factor} * {budget!r}) and {name(long)} > ({factor} * {budget!r})"
        labels = {"severity": severity, "tier": long}
        rules.append({"alert": "Pyrra", "expr": expr, "for": pending, "labels": labels})
    absent = f'absent({triton.REQUEST_SUCCESS}{{model=~".+"}}) == 1'
    rules.append({"alert": "PyrraAbsent", "expr": absent, "for": "3m", "labels": {"severity": "critical"}})
    return _document(rules, "pyrra")
