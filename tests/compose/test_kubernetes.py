"""The Kubernetes manifests hold together: complete lists, valid kinds, rules equal to the rule files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.tools import ROOT, prometheuses
from tritonwatch.cli import main

KUBERNETES = ROOT / "compose" / "kubernetes"
OVERLAYS = ("overlays/prometheus-operator", "overlays/victoria-metrics", "overlays/remote-write", "example")
CORE = ("v1", "apps/v1", "networking.k8s.io/v1", "autoscaling/v2")
OPERATORS = {
    "PrometheusRule",
    "PodMonitor",
    "VMPodScrape",
    "PrometheusAgent",
    "ScaledObject",
}
"""Kinds whose schemas are not checked here; that they are written as their operators expect is not proven."""


def _documents() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(KUBERNETES.rglob("*.y*ml")):
        if path.name in ("kustomization.yaml", "exporter.yaml", "adapter-rule.yaml"):
            continue
        for document in yaml.safe_load_all(path.read_text()):
            yield path, document


def test_core_kinds_keep_the_schemas_of_kubernetes() -> None:
    """Every Deployment, Service, ConfigMap, policy and autoscaler is valid, strictly."""
    kinds = set()
    for path, document in _documents():
        kinds.add(document["kind"])
        if document["apiVersion"] in CORE:
            kubernetes_validate.validate(document, "1.31", strict=True)
        else:
            assert document["kind"] in OPERATORS, f"{path}: {document['kind']} is checked by nobody"

    assert {"Deployment", "Service", "ConfigMap", "NetworkPolicy", "HorizontalPodAutoscaler"} <= kinds


def test_a_mistake_in_a_manifest_is_found() -> None:
    """The schemas are really asked: a misspelt field fails."""
    _, deployment = next(pair for pair in _documents() if pair[1]["kind"] == "Deployment")
    deployment["spec"]["replicsa"] = 1

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.31", strict=True)


@pytest.mark.parametrize("folder", ["rules", "dashboards"])
def test_lists_name_every_generated_file(folder: str) -> None:
    """A rule or dashboard that is generated is also applied."""
    listed = yaml.safe_load((KUBERNETES / folder / "kustomization.yaml").read_text())["resources"]
    files = {path.name for path in (KUBERNETES / folder).glob("*.y*ml")} - {"kustomization.yaml"}

    assert files == set(listed)


def test_the_generated_objects_have_not_drifted(tmp_path: Path) -> None:
    """`make generate-kubernetes` would change nothing."""
    arguments = ["--objectives", str(ROOT / "slo" / "objectives"), "--format", "operator", "--only", "rules"]
    assert 0 == main(["generate", *arguments, "--check", "--out", str(KUBERNETES / "rules")])
    written = [
        "dashboards",
        "write",
        "--format",
        "configmap",
        "--namespace",
        "triton",
        "--out",
        str(tmp_path),
    ]
    assert 0 == main(written)

    for path in tmp_path.glob("*.yaml"):
        assert path.read_bytes() == (KUBERNETES / "dashboards" / path.name).read_bytes(), path.name


def test_the_rules_are_those_of_the_rule_files() -> None:
    """Kubernetes and Prometheus are given the same groups."""
    for path in (ROOT / "alerts" / "generated" / "rules").glob("*.yml"):
        ours = yaml.safe_load((KUBERNETES / "rules" / path.name).read_text())

        assert yaml.safe_load(path.read_text())["groups"] == ours["spec"]["groups"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_renders(overlay: str) -> None:
    """kustomize accepts the overlay; the example's Deployment gets exactly one sidecar."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here")
    done = subprocess.run([kubectl, "kustomize", KUBERNETES / overlay], capture_output=True, text=True)

    assert 0 == done.returncode, done.stderr
    documents = list(yaml.safe_load_all(done.stdout))
    assert documents
    if overlay == "example":
        containers = documents[0]["spec"]["template"]["spec"]["containers"]
        assert ["triton", "tritonwatch-exporter"] == sorted(one["name"] for one in containers)


def test_monitors_are_the_same_in_both_overlays_that_use_them() -> None:
    """kustomize cannot reach outside a folder, so one file stands twice; they must not part."""
    one, other = (
        KUBERNETES / "overlays" / name / "pod-monitor.yaml"
        for name in ("prometheus-operator", "remote-write")
    )

    assert one.read_bytes() == other.read_bytes()


def test_the_autoscalers_queries_run(tmp_path: Path) -> None:
    """KEDA's query and prometheus-adapter's, with its placeholders filled, are PromQL."""
    keda = yaml.safe_load((KUBERNETES / "autoscaling" / "keda.yaml").read_text())
    rule = yaml.safe_load((KUBERNETES / "autoscaling" / "adapter-rule.yaml").read_text())[0]
    adapter = rule["metricsQuery"].replace("<<.LabelMatchers>>", 'pod="a"').replace("<<.GroupBy>>", "pod")
    queries = [keda["spec"]["triggers"][0]["metadata"]["query"], adapter, rule["seriesQuery"]]
    rules = [{"record": f"q:{n}", "expr": query} for n, query in enumerate(queries)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": rules}]}))

    for prometheus in prometheuses():
        promtool = prometheus.with_name("promtool")
        done = subprocess.run(
            [promtool, "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True
        )
        assert 0 == done.returncode, done.stderr


def test_the_sidecars_command_line_is_one_the_exporter_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Every flag of the sidecar stands in the exporter's own help."""
    patch = yaml.safe_load((KUBERNETES / "sidecar" / "exporter.yaml").read_text())
    arguments = patch["spec"]["template"]["spec"]["containers"][0]["args"]
    assert 0 == main([arguments[0], "--help"])
    words = capsys.readouterr().out.split()

    assert [] == [flag for flag in (one.partition("=")[0] for one in arguments[1:]) if flag not in words]
