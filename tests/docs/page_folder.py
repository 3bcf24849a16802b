"""Prepare a folder as a page of the documentation assumes it before the first command."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from support.conversion import SLOTH
from support.tools import ROOT

_OPENSLO = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: shop}
spec:
  description: Orders are taken.
  service: shop
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.999}]
  indicator:
    metadata: {name: orders}
    spec:
      ratioMetric:
        counter: true
        bad: {metricSource: {type: Prometheus, spec: {query: 'orders_total{outcome="failed"}'}}}
        total: {metricSource: {type: Prometheus, spec: {query: orders_total}}}
"""
_LABELS = {
    "alertname": "TritonModelLoadFailed",
    "model": "ranker",
    "instance": "t:9401",
    "severity": "warning",
}
_ALERT = {
    "status": "firing",
    "labels": _LABELS,
    "annotations": {"summary": "Model ranker failed to load", "description": "It could not."},
    "startsAt": "2026-01-01T00:00:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "",
    "fingerprint": "1",
}
_BODY = {
    "version": "4",
    "groupKey": '{}:{model="ranker"}',
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "slack",
    "groupLabels": {"model": "ranker"},
    "commonLabels": _LABELS,
    "commonAnnotations": {},
    "externalURL": "http://alertmanager:9093",
    "alerts": [_ALERT],
}
_CSV = re.compile(r"^```csv\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r'^```yaml title="(\w+\.yaml)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def prepare(page: str, directory: Path) -> None:
    """Lay out the repository's objectives, and the files that the page calls the reader's own."""
    shutil.copytree(ROOT / "slo" / "objectives", directory / "slo" / "objectives")
    shutil.copy(ROOT / "alerts" / "generated" / "rules" / "slo-queue.yml", directory / "my-rules.yml")
    (directory / "openslo").mkdir()
    (directory / "openslo" / "shop.yaml").write_text(_OPENSLO)
    (directory / "slos.yaml").write_text(SLOTH)
    (directory / "captured-body.json").write_text(json.dumps(_BODY))
    for text in _CSV.findall((ROOT / page).read_text()):
        (directory / "incidents.csv").write_text(text)
    for name, text in _NAMED.findall((ROOT / page).read_text()):
        (directory / name).write_text(text)
