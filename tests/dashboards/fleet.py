"""Make expositions of many models, as Triton 2.51 with summaries writes them: about 60 series a model."""

from __future__ import annotations

from triton_exporter.catalogue import Metric, triton

FAILURES = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
QUANTILES = ("0.5", "0.9", "0.95", "0.99", "0.999")
COUNTERS = (
    (triton.REQUEST_SUCCESS, 7),
    (triton.INFERENCE_COUNT, 9),
    (triton.EXEC_COUNT, 5),
    (triton.REQUEST_DURATION_US, 91_234),
    (triton.QUEUE_DURATION_US, 1_234),
    (triton.COMPUTE_INPUT_DURATION_US, 321),
    (triton.COMPUTE_INFER_DURATION_US, 87_654),
    (triton.COMPUTE_OUTPUT_DURATION_US, 456),
)
SUMMARIES = (
    triton.REQUEST_SUMMARY_US,
    triton.QUEUE_SUMMARY_US,
    triton.COMPUTE_INPUT_SUMMARY_US,
    triton.COMPUTE_INFER_SUMMARY_US,
    triton.COMPUTE_OUTPUT_SUMMARY_US,
)
# Counters of Python models' own, to make 60 series a model as a fleet with custom metrics has.
CUSTOM = 12


def exposition(models: int, moment: int, first: int = 0) -> bytes:
    """Return what a fleet exposes at a moment: every counter has moved since the moment before."""
    labels = [f'model="model_{number}",version="1"' for number in range(first, first + models)]
    lines: list[str] = []
    for metric, step in COUNTERS:
        lines += _head(metric, "counter")
        lines += [
            f"{metric}{{{label}}} {step * (moment + 1) * (at % 7 + 1)}" for at, label in enumerate(labels)
        ]
    lines += _head(triton.REQUEST_FAILURE, "counter")
    lines += [
        f'{triton.REQUEST_FAILURE}{{model="{label.split(chr(34))[1]}",reason="{reason}",version="1"}} 0'
        for label in labels
        for reason in FAILURES
    ]
    lines += _head(triton.PENDING_REQUESTS, "gauge")
    lines += [f"{triton.PENDING_REQUESTS}{{{label}}} {moment % 3}" for label in labels]
    for metric in SUMMARIES:
        lines += _head(metric, "summary")
        for at, label in enumerate(labels):
            lines.append(f"{metric.count}{{{label}}} {7 * (moment + 1) * (at % 7 + 1)}")
            lines.append(f"{metric.sum}{{{label}}} {9_123 * (moment + 1) * (at % 7 + 1)}")
            lines += [
                f'{metric}{{{label},quantile="{q}"}} {900 + moment + 100 * rank}'
                for rank, q in enumerate(QUANTILES)
            ]
    for number in range(CUSTOM):
        lines += [f"# HELP custom_{number} Of a model's own", f"# TYPE custom_{number} counter"]
        lines += [f"custom_{number}{{{label}}} {moment * 3 + number}" for label in labels]
    return "".join(f"{line}\n" for line in lines).encode()


def _head(metric: Metric, kind: str) -> list[str]:
    return [f"# HELP {metric} {metric.help}", f"# TYPE {metric} {kind}"]
