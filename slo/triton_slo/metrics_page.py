"""The page that lists every series, made from the catalogue: `python -m triton_slo.metrics_page`."""

from __future__ import annotations

import sys
from types import ModuleType

from triton_exporter.catalogue import Metric, gpu, llm, models, own, probe, processes, state, triton
from triton_exporter.catalogue.external import headroom
from triton_slo import bridge_series

_HEAD = """\
# List of metrics

Made from the catalogue (`make generate`); do not edit. The exporter relays what Triton exposes unchanged in
name and value, but for [its summaries](exporter.md#series-that-are-left-out), and adds everything that starts with
`triton_`. Histograms have the usual `_bucket`, `_sum` and
`_count`. How to ask for what you want to know: [howto.md](howto.md#how-do-i-see-).

`since` is the first Triton release that has the series, `flag` what switches it on (of Triton, or of
`tritonwatch exporter` where it starts with `--probe`, `--triton-log`, `--expect-file` or `--otlp`).
"""

_PARTS: tuple[tuple[str, str, ModuleType], ...] = (
    ("State of servers and models", "Added by the exporter, from Triton's APIs and its log.", state),
    (
        "Configuration and work",
        "Added by the exporter, from each ready model's config and statistics.",
        models,
    ),
    ("Probes", "Added by the exporter where `--probe` asks for small inference requests.", probe),
    ("Processes and memory", "Added by the exporter where it sees Triton's processes.", processes),
    ("GPUs", "Added by the exporter, from dcgm-exporter, NVML or Triton, in base units.", gpu),
    ("Triton", "Triton's own, relayed.", triton),
    ("Language models", "Of Triton's TensorRT-LLM and vLLM backends, relayed.", llm),
    ("The exporter itself", "", own),
    ("Headroom", "Of `tritonwatch advise` with `--watch`.", headroom),
    ("The alert bridge", "Of `tritonwatch bridge`.", bridge_series),
)


def page() -> str:
    """Return the whole page in Markdown."""
    return _HEAD + "".join(_part(title, text, module) for title, text, module in _PARTS)


def _part(title: str, text: str, module: ModuleType) -> str:
    metrics = [value for value in vars(module).values() if isinstance(value, Metric)]
    lines = [f"\n## {title}\n", *([text, ""] if text else [])]
    lines.append("| series | type | unit | labels | meaning |")
    lines.append("|---|---|---|---|---|")
    lines += [_row(metric) for metric in dict.fromkeys(metrics)]
    return "\n".join(lines) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    notes = [metric.help]
    if metric.source:
        notes.append(f"Source: {metric.source}.")
    if metric.since:
        notes.append(f"Since: {metric.since}.")
    if metric.flag:
        notes.append(f"Flag: `{metric.flag}`.")
    if metric.caveat:
        notes.append(f"**{metric.caveat}**")
    cells = (f"`{metric}`", metric.kind, metric.unit, labels, " ".join(notes))
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(page())
