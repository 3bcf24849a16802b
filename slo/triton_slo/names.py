"""Every name that the rules record or put on alerts: the other half of the catalogue.

Metadata names follow Sloth's, so that its dashboards and habits carry over. `<w>` in a name is the nominal
window (5m, 1h, 30d) even when a time scale shortens the real one, so that panels and alerts keep working in
the demo.

All series of a group carry `slo`, `indicator`, its grouping labels (`model` and `version` by default) and, where
there
is one, `threshold`, and nothing else: series match one to one, and a changed owner breaks no history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

RUNBOOK_URL = "https://github.com/tritonwatch/tritonwatch/blob/main/alerts/runbooks/{alert}.md"
"""Annotation of alerts, unless --runbook-url gives another address."""
SLO = "slo"
"""Label: name of the objective."""
INDICATOR = "indicator"
"""Label: the kind of an indicator, one of `indicators.KINDS`."""
EVENT = "event"
"""Label of counters of events: `error` or `total`. Both always exist together; idle is 0 and 0."""
ERROR = "error"
TOTAL = "total"
THRESHOLD = "threshold"
"""Label of an objective with a threshold: a changed one begins new series, since it counts other events."""
CAUSE = "cause"
"""Label of the recorded split of time and errors: queue, compute_infer, failure:BACKEND, state:loading."""
REASON = "reason"
"""Label of an objective that cannot be measured: no_bucket (no bucket ends at the threshold), no_histogram
(Prometheus does not store it), no_first_response, no_token_times and no_request_means (Triton or the engine does not
export it), no_api (only its metrics are read); of excluded time why it is."""
SOURCE = "source"
"""Label: what an indicator was computed from; `triton_slo.sources` has what each cannot see."""
SEVERITY = "severity"
"""Label of every alert: critical pages, warning opens a ticket, info informs, none is the watchdog."""
Severity = Literal["critical", "warning", "info", "none"]
SEVERITIES: tuple[str, ...] = get_args(Severity)
"""All values of the label, most urgent first."""
TIER = "tier"
"""Label of burn alerts: page_fast, page_slow, ticket_fast, ticket_slow, or as the objective calls its tiers."""
URGENCY = "urgency"
"""Label of burn alerts: 1 is the most urgent tier of the objective; inhibition relies on it."""
SEEN_BY = "seen_by"
"""Label of the alerts of an objective that a gateway or a probe measures, and not Triton; inhibition relies on it."""
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
"""Days of the window; of a calendar's the nominal ones: 7, 30 or 90."""
PERIOD_BUDGET_REMAINING = "slo:period_error_budget_remaining:ratio"
"""Share of a rolling window's budget that is left; a calendar's is asked for with the time since the period
began."""
INFO = "slo:objective:info"
"""Always 1; labels slo, indicator, owner, target, window, threshold, description: for tables, not maths."""
SLI_EXCLUDED = "slo:sli_excluded:state"
"""1, with a `reason`, while time does not count for an objective."""
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
"""A model that no server reports and that should have been served when they were last seen: one for all
objectives."""
UNMEASURED_ALERT = "TritonSLOUnmeasured"
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


MODEL_EXPECTED_COPY = "slo:model_expected:copy"
"""Which models a server should serve, recorded so that a day of them is cheap to read."""
SERVER = "slo:sli_events:server"
"""What each server has counted so far (label `event`), with all labels of its series."""
SEEN = "slo:sli_events:seen"
"""What of `SERVER` is in `COUNTER`: that of the last evaluation."""
COUNTER = "slo:sli_events:total"
"""Counter of a group's events (label `event`: error or total): every number of an objective is an increase of
it."""
COPY = "slo:sli_events:coarse"
"""The same counter every four minutes, for windows over six hours."""
COUNTER_SINCE = "slo:sli_events:since_timestamp_seconds"
"""Unix time since which a group is counted."""
SERVERS_NOW = "slo:sli_servers:now"
"""Servers of a model that do not have it ready now (`event`: error), and all that should (total)."""
NOT_OF_GROUP = frozenset({"__name__", SLO, INDICATOR, EVENT, THRESHOLD, CAUSE, REASON, SOURCE, TIER})
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
