"""Every name that the rules record or put on alerts: the other half of the catalogue.

Metadata names follow Sloth's, so that its dashboards and habits carry over. `<w>` in a name is the nominal
window (5m, 1h, 30d) even when a time scale shortens the real one, so that panels and alerts keep working in
the demo.

All series of an objective carry `slo`, `indicator` and its grouping labels (`model` and `version` by
default), and nothing else: series of two windows match one to one, and a changed owner breaks no history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

SLO = "slo"
"""Label: name of the objective."""
INDICATOR = "indicator"
"""Label: the kind of an indicator, one of `indicators.KINDS`."""
EVENT = "event"
"""Label of recorded event rates: `error` or `total`. Both always exist together; idle is 0 and 0."""
RUNG = "rung"
"""Label within an expression, never recorded. A rung is one candidate for the next value of a running sum: without
the label, candidates of the same group would be one series. In an alert it marks how short the history is."""
ERROR = "error"
TOTAL = "total"
CAUSE = "cause"
"""Label of the recorded split of time and errors: queue, compute_infer, failure:BACKEND, state:loading."""
REASON = "reason"
"""Label of unknown data: vanished (the series are gone), stuck (requests wait and none completes),
no_bucket (no bucket ends at the threshold), no_histogram (Prometheus does not store it), no_first_response and
no_first_token (Triton does not export it) or silent (no probe shows anything about the model)."""
SOURCE = "source"
"""Label: what an indicator was computed from; `triton_slo.indicators.common.sources` has what each cannot see."""
SEVERITY = "severity"
"""Label of every alert: critical pages, warning opens a ticket, info informs, none is the watchdog."""
Severity = Literal["critical", "warning", "info", "none"]
SEVERITIES: tuple[str, ...] = get_args(Severity)
"""All values of the label, most urgent first."""
TIER = "tier"
"""Label of burn alerts: page_fast, page_slow, ticket_fast, ticket_slow, or as the objective calls its tiers."""
URGENCY = "urgency"
"""Label of burn alerts: 1 is the most urgent tier of the objective; inhibition relies on it."""
URGENCIES = 6
"""An objective's sixth tier and those after it share one urgency."""
COMPONENT = "component"
"""Label of every alert: slo, lifecycle, traffic, llm, gpu, meta."""
OWNER = "owner"
STACK = "stack"
"""Label of every alert, always `OWN_STACK`: an Alertmanager that others use too routes and inhibits by it."""
OWN_STACK = "tritonwatch"

GROUPING = ("model", "version")
"""Labels that make a group by default: one SLI, one budget for each model version over all servers."""

RECORDED_HERE = f'{INDICATOR}!=""'
"""Matcher of the series that our rules record: Sloth records some of the same names, without an indicator."""

RECORDED_PREFIX = "slo:"
"""Beginning of the names of all series recorded for objectives."""
OBJECTIVE_RATIO = "slo:objective:ratio"
ERROR_BUDGET_RATIO = "slo:error_budget:ratio"
THRESHOLD_SECONDS = "slo:objective:threshold_seconds"
"""Seconds that a good request may take or wait, for indicators that have such a limit: a panel's dashed line."""
PERIOD_DAYS = "slo:time_period:days"
"""Days that the budget stands for: the window, or (calendar, unless events are seconds) the period so far."""
PERIOD_START = "slo:time_period:start_timestamp_seconds"
"""Unix time at which the current calendar period began; only for calendar windows."""
PERIOD_END = "slo:time_period:end_timestamp_seconds"
"""Unix time at which the next calendar period begins."""
PERIOD_LOCAL = "slo:time_period:local_seconds"
"""Wall clock of the objective's time zone, as Unix seconds as if it showed UTC, at an `edge` of the period."""
EDGE = "edge"
"""Label of the wall clock: now, month (where needed), start, end."""
PERIOD_EVENTS = "slo:period_events:sum"
"""Events since the current calendar period began (label `event`: error or total)."""
CURRENT_BURN_RATE = "slo:current_burn_rate:ratio"
PERIOD_BURN_RATE = "slo:period_burn_rate:ratio"
PERIOD_BUDGET_REMAINING = "slo:period_error_budget_remaining:ratio"
INFO = "slo:objective:info"
"""Always 1; labels slo, indicator, owner, target, window, threshold, description: for tables, not maths."""
RULES_SINCE = "slo:rules:since_timestamp_seconds"
"""Unix time since which an objective's rules are evaluated; a pause of up to a day is part of it. Recorded once at
each evaluation, so that its samples count the evaluations of a window; only where states are recorded."""
LAST_SEEN = "slo:sli:last_seen_timestamp_seconds"
"""Unix time at which a group's series last existed; outlives them by the objective's period."""
RETIRED = "slo:sli:retired_timestamp_seconds"
"""Unix time at which a group was last known to be unloaded on purpose or replaced; one that serves again is seen
later than that."""
UNKNOWN = "slo:sli_unknown:state"
"""1, with a `reason`, while a group that should have data has none worth trusting; absent otherwise."""
SLI_EXCLUDED = "slo:sli_excluded:state"
"""1, with a `reason`, while time does not count for an objective, or windows still reach into such time."""
BURNING = "slo:sli_burning:bool"
"""1 while a group uses up budget faster than allowed, in the last minutes; else 0."""
LAST_SEEN_BEFORE = "slo:sli:last_seen_before_pause_timestamp_seconds"
"""`LAST_SEEN` of before a pause of the rules, until it is recorded again; absent otherwise."""
RETIRED_BEFORE = "slo:sli:retired_before_pause_timestamp_seconds"
"""`RETIRED` of before a pause of the rules, until it is recorded again; absent otherwise."""
SLI_SOURCE = "slo:sli_source:info"
"""1 for the source that a group's indicator uses (label `source`)."""
ESTIMATE_ERROR = "slo:sli_estimate_error:ratio_rate1h"
"""Error, either way, of a group's estimated share of the last hour; absent where its source is exact, or
where the exporter states no error."""
CAUSE_SHARE = "slo:sli_cause:ratio_rate1h"
"""Share of time or failures that one cause has, by indicator, model, version and `cause`."""

OVERBURN = "slo:overburn:ratio_rate1h"
"""Burn rate over the last hour of each group that uses up budget faster than allowed; absent otherwise."""
OBJECTIVE_EVENTS = "slo:objective_events:rate5m"
"""Events per second of all groups of an objective (label `event`: error or total)."""
WORST_CAUSE = "slo:worst_cause:ratio_rate1h"
"""The highest `CAUSE_SHARE` of any model, by indicator and `cause`."""

UNKNOWN_ALERT = "TritonSLOUnknown"
NEARLY_SPENT_ALERT = "TritonSLOBudgetNearlySpent"
SPENT_ALERT = "TritonSLOBudgetSpentUnnoticed"
BUDGET_ALERTS = (NEARLY_SPENT_ALERT, SPENT_ALERT)
"""Tickets about a budget for which no burn alert need fire."""

ALERTS = "ALERTS"
"""The series in which Prometheus itself keeps the state of alerts: not ours to rename."""


GroupLabels = tuple[tuple[str, str], ...]
"""Labels of a group with their values, sorted."""


def group_of(labels: Mapping[str, str]) -> GroupLabels:
    """Return the labels of the group that a recorded series is about."""
    return tuple(sorted(pair for pair in labels.items() if pair[0] not in NOT_OF_GROUP))


def sli_error(window: str) -> str:
    """Return the name of the recorded error ratio over a nominal window, as in Sloth; absent without events."""
    return f"slo:sli_error:ratio_rate{window}"


def worst_burn(window: str) -> str:
    """Return the name of the highest burn rate of an objective's groups over a nominal window."""
    return f"slo:worst_burn:ratio_rate{window}"


def sli_events(window: str) -> str:
    """Return the name of the recorded events per second over a nominal window (label `event`: error or total)."""
    return f"slo:sli_events:rate{window}"


_BURN_PART, _TRUTH = "slo:burn_", ":bool"


def burn_part(name: str) -> str:
    """Return the name of the series that exists while a part of a burn alert's condition is true (label `tier`)."""
    return f"{_BURN_PART}{name}{_TRUTH}"


def part_of_burn(series: str) -> str | None:
    """Return the part of a burn alert's condition that a series is recorded for; None for any other series."""
    if series.startswith(_BURN_PART) and series.endswith(_TRUTH):
        return series[len(_BURN_PART) : -len(_TRUTH)]
    return None


WITHIN_ERROR = burn_part("within_error")
"""1 for each page tier whose long window burns, but neither window if the estimate is wrong by its stated error."""


SLI_EVENTS_NOW = "slo:sli_events:now"
"""Events per second at this evaluation, for indicators that are evaluated rather than counted (readiness)."""
SLI_EVENTS_LINK = "slo:sli_events:rate4scrapes"
"""Events per second of the last scrapes (label `event`), of groups whose sum is too young for a longer window."""
SLI_EVENTS_SUM = "slo:sli_events:sum"
"""Events since the sum began (label `event`), which windows over an hour are differences of."""
SLI_EVENTS_CHECKPOINT = "slo:sli_events:checkpoint"
"""Copy of the sum, recorded every four minutes; after a pause of over an hour, the sum continues from it."""
SLI_EVENTS_COUNTED = "slo:sli_events:checkpoint_rate6h"
"""Events per second over six hours of the counters, every four minutes (label `event`)."""


def sli_events_base(window: str) -> str:
    """Return the name of the sum at a window's start, recorded while that is in a pause or soon will be."""
    return f"slo:sli_events:base{window}"


SLI_EVENTS_SINCE = "slo:sli_events:since_timestamp_seconds"
"""Unix time at which a group's sum began."""


NOT_OF_GROUP = frozenset({"__name__", SLO, INDICATOR, EVENT, CAUSE, REASON, SOURCE, TIER, EDGE, RUNG})
"""Labels of recorded series that are not part of the group which a series is about."""


TRAFFIC = (
    "requests",
    "failures",
    "request_seconds",
    "queue_seconds",
    "inferences",
    "executions",
    "pending",
)
"""Recorded figures of traffic, so that a fleet of thousands of models can be drawn: rates over 2 minutes, and the
present sum of `pending`."""


def model_traffic(what: str) -> str:
    """Return the name of a recorded traffic figure by cluster, job and model, summed over servers and versions.

    An ensemble waits in the queues of its steps.
    """
    return f"model:triton_{what}:{_traffic_operation(what)}"


def server_traffic(what: str) -> str:
    """Return the name of a recorded traffic figure by cluster, job and instance, summed over models.

    A client's request to an ensemble counts once, not again for each step.
    """
    return f"instance:triton_{what}:{_traffic_operation(what)}"


STEP_TRAFFIC = ("requests", "failures", "request_seconds", "queue_seconds", "pending")
"""Figures that are recorded of ensembles and of their steps, too."""


def ensemble_traffic(what: str) -> str:
    """Return the name of a figure of an ensemble, or of a step, by cluster, job, instance and model."""
    return f"ensemble:triton_{what}:{_traffic_operation(what)}"


def step_traffic(what: str) -> str:
    """Return the name of the part of a step's figure that an ensemble causes.

    By cluster, job, instance, model (the ensemble) and step_model. In totals these would count a client's request
    once more.
    """
    return f"step:triton_{what}:{_traffic_operation(what)}"


COUNTED_TWICE = "ensemble:triton_failures_counted_twice:rate2m"
"""Failed requests of an ensemble: Triton counts each of them twice, with the reason OTHER."""
STEPS_ASKED = "step:triton_requests_asked:rate2m"
"""Requests that an ensemble would send to its step if none failed before."""


def _traffic_operation(what: str) -> str:
    if what not in TRAFFIC:
        raise ValueError(f"{what!r} is not recorded; choose from {', '.join(TRAFFIC)}")
    return "sum" if what == "pending" else "rate2m"


FAILED_LOADS = "model:triton_load_failures:increase2m"
"""Failed loads of two minutes by cluster, job, instance, model and reason; absent where none failed."""
BECAME_READY = "model:triton_became_ready:offset2m"
"""1 for a model version that serves on a server and did not two minutes ago; absent otherwise."""
MODELS_IN_STATE = "instance:triton_models:sum"
"""Number of model versions in each state, by cluster, job, instance and state."""
UTILIZATION_CAUSED = "model:triton_gpu_utilization:sum"
"""Utilisation that a model causes on all its GPUs (estimate), by cluster, job and model."""


def severity_rank(severity: str) -> int:
    """Return the rank of a severity to sort by, 0 for the most urgent; an unknown one is last."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
