"""Show every engine's series of language models under one set of names (`catalogue.llm`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from triton_exporter.catalogue import Metric, llm, triton
from triton_exporter.distribution.buckets import le
from triton_exporter.exposition.parse import Exposition, Series
from triton_exporter.family import Family, Sample, series

_Rows = dict[tuple[str, str], dict[tuple[str, str], float]]
"""Values by model and version (empty: vLLM and others know none), then by the suffix of the series and its `le`."""
_SUM = "_sum"


def families(exposition: Exposition) -> Iterator[Family]:
    """Yield the series of a page's language models; nothing where it has none."""
    if llm.FAMILIES.isdisjoint(exposition.families):
        return
    found: dict[tuple[Metric, tuple[str, ...]], _Rows] = {}
    for target, sources in llm.SOURCES.items():
        rows = found[target] = {}
        for source in sources:
            rows |= {key: row for key, row in _read(exposition, target[0], source).items() if key not in rows}
    used, most = (
        _read(exposition, llm.KV_CACHE, f'{llm.TRTLLM_KV_CACHE}{{kv_cache_block_type="{kind}"}}')
        for kind in ("used", "max")
    )
    for key in used.keys() & most.keys():
        if most[key]["", ""] > 0:
            found[llm.KV_CACHE, ()].setdefault(key, {("", ""): used[key]["", ""] / most[key]["", ""]})
    # Any model has a first response: only of language models it is a token.
    language = {key for rows in found.values() for key in rows}
    for key, row in _read(exposition, llm.FIRST_TOKEN, triton.FIRST_RESPONSE_MS.name, 1000).items():
        if key in language:
            found[llm.FIRST_TOKEN, ()].setdefault(key, row)
    samples: dict[Metric, list[Sample]] = defaultdict(list)
    for (metric, labels), rows in found.items():
        samples[metric] += (
            Sample(series(metric, *key, *labels, suffix=suffix, le=bound), value)
            for key, row in sorted(rows.items())
            for (suffix, bound), value in row.items()
        )
    for metric, of_metric in samples.items():
        if of_metric:
            yield Family(metric, of_metric)


def _read(exposition: Exposition, metric: Metric, source: str, per_unit: float = 1) -> _Rows:
    """Return a source's values of each model: over its engines the sum, of a share the highest."""
    chosen = Series.of(source)
    family = exposition.families.get(chosen.name) or exposition.families.get(chosen.name.removesuffix(_SUM))
    rows: _Rows = defaultdict(dict)
    is_histogram = metric.kind == "histogram"
    if family is None or is_histogram != (family.kind == "histogram" and family.name == chosen.name):
        return rows
    for each, value in family.samples():
        labels = each.labels
        model = labels.get("model") or labels.get("model_name")
        if not model or not (is_histogram or each.name == chosen.name):
            continue
        if any(labels.get(label) != wanted for label, wanted in chosen.labels.items()):
            continue
        row = rows[model, labels.get("version", "")]
        suffix, bound = each.name.removeprefix(family.name) if is_histogram else "", ""
        if suffix == "_bucket":
            upper = float(labels.get("le", "NaN")) / per_unit
            bound = "+Inf" if math.isinf(upper) else le(upper)
        part = suffix, bound
        value /= per_unit if suffix == _SUM else 1
        row[part] = max(row.get(part, value), value) if metric is llm.KV_CACHE else row.get(part, 0) + value
    return rows
