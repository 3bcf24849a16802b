"""The Kubernetes manifests hold together: complete lists, valid kinds, rules equal to the rule files."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from support.tools import ROOT, promtools
from tritonwatch.cli import main

KUBERNETES = ROOT / "compose" / "kubernetes"
OVERLAYS = ("overlays/prometheus-operator", "overlays/victoria-metrics", "overlays/remote-write", "example")
CORE = ("v1", "apps/v1", "networking.k8s.io/v1", "autoscaling/v2")
SCHEMAS = Path(__file__).parent / "schema"


def _operators() -> dict[str, jsonschema.Draft7Validator]:
    """The kinds of the operators, and who judges each; schema/README.md says how they were made."""
    made = json.loads((SCHEMAS / "operators.json").read_text())
    definitions = made["definitions"]
    schemas = {
        kind: schema | {"definitions": definitions}
        for kind, schema in definitions["Root"]["properties"].items()
    }
    schemas["VMPodScrape"] = yaml.safe_load((SCHEMAS / "vmpodscrape.yaml").read_text())
    return {kind: jsonschema.Draft7Validator(schema) for kind, schema in schemas.items()}


def _documents() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(KUBERNETES.rglob("*.y*ml")):
        if path.name in ("kustomization.yaml", "exporter.yaml", "adapter-rule.yaml"):
            continue
        for document in yaml.safe_load_all(path.read_text()):
            yield path, document


def test_core_kinds_keep_the_schemas_of_kubernetes() -> None:
    """Every Deployment, Service, ConfigMap, policy and autoscaler is valid, strictly."""
    kinds = set()
    for _, document in _documents():
        if document["apiVersion"] in CORE:
            kinds.add(document["kind"])
            kubernetes_validate.validate(document, "1.31", strict=True)

    assert {"Deployment", "Service", "ConfigMap", "NetworkPolicy", "HorizontalPodAutoscaler"} <= kinds


def test_the_operators_kinds_keep_their_schemas() -> None:
    """Every monitor, rule, agent and scaled object is what its operator knows, with no key more."""
    operators, kinds = _operators(), set()
    for path, document in _documents():
        if document["apiVersion"] in CORE:
            continue
        assert document["kind"] in operators, f"{path}: {document['kind']} is checked by nobody"
        kinds.add(document["kind"])
        found = operators[document["kind"]].iter_errors(document)
        assert [] == [f"{path}: {error.json_path}: {error.message}" for error in found]

    assert set(operators) == kinds


@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    [
        ("PrometheusRule", ("groups", 0, "rules", 0), {"exprr": "up"}),
        ("PodMonitor", ("podMetricsEndpoints", 0), {"relabelConfigs": []}),
        ("PrometheusAgent", ("remoteWrite", 0), {"uri": "x"}),
        ("VMPodScrape", ("podMetricsEndpoints", 0), {"relabelings": []}),
        ("ScaledObject", ("triggers", 0), {"metadata": {"threshold": 5}}),
    ],
)
def test_a_mistake_in_an_operators_kind_is_found(
    kind: str, path: tuple[str | int, ...], wrong: dict[str, Any]
) -> None:
    """The schemas are really asked: one key or type that the operator does not know fails."""
    _, document = next(pair for pair in _documents() if pair[1]["kind"] == kind)
    place = document["spec"]
    for step in path:
        place = place[step]
    place.update(wrong)

    assert not _operators()[kind].is_valid(document)


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


def _autoscaling() -> tuple[str, str]:
    """KEDA's query, and prometheus-adapter's with its placeholders filled as it fills them for two pods."""
    keda = yaml.safe_load((KUBERNETES / "autoscaling" / "keda.yaml").read_text())
    rule = yaml.safe_load((KUBERNETES / "autoscaling" / "adapter-rule.yaml").read_text())[0]
    matchers = 'namespace="triton",pod=~"busy|idle"'
    adapter = rule["metricsQuery"].replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", "pod")
    return keda["spec"]["triggers"][0]["metadata"]["query"], adapter


@pytest.mark.parametrize("promtool", promtools(), ids=str)
@pytest.mark.parametrize(
    ("pods", "over_all", "by_pod"),
    [
        pytest.param({"busy": 3, "idle": 0}, [("{}", 0.3)], [("busy", 0.3), ("idle", 0)], id="one busy"),
        pytest.param({"busy": 0, "idle": 0}, [("{}", 0)], [("busy", 0), ("idle", 0)], id="all idle"),
        pytest.param({}, [], [], id="no data"),
    ],
)
def test_the_autoscalers_see_the_queue(
    promtool: Path,
    pods: dict[str, float],
    over_all: list[tuple[str, float]],
    by_pod: list[tuple[str, float]],
    tmp_path: Path,
) -> None:
    """10 requests a second that wait 0.3 s are 0.3; no traffic is 0, so that it scales in; no data is no answer."""
    keda, adapter = _autoscaling()
    series = []
    for pod, waited in pods.items():
        labels = f'{{namespace="triton",pod="{pod}"}}'
        many = 10 if waited else 0
        series += [
            {"series": f"triton_model_queue_duration_seconds_sum{labels}", "values": f"0+{waited * 15}x40"},
            {"series": f"triton_model_queue_duration_seconds_count{labels}", "values": f"0+{many * 15}x40"},
        ]
    asked = [
        {"expr": keda, "eval_time": "9m", "exp_samples": [{"labels": k, "value": v} for k, v in over_all]},
        {
            "expr": adapter,
            "eval_time": "9m",
            "exp_samples": [{"labels": f'{{pod="{pod}"}}', "value": value} for pod, value in by_pod],
        },
    ]
    proof = {"interval": "15s", "input_series": series, "promql_expr_test": asked}
    (tmp_path / "none.yml").write_text("groups: []\n")
    (tmp_path / "proof.yml").write_text(yaml.safe_dump({"rule_files": ["none.yml"], "tests": [proof]}))
    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "proof.yml"],
        capture_output=True,
        text=True,
    )

    assert 0 == done.returncode, done.stdout + done.stderr


def test_the_sidecars_command_line_is_one_the_exporter_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Every flag of the sidecar stands in the exporter's own help."""
    patch = yaml.safe_load((KUBERNETES / "sidecar" / "exporter.yaml").read_text())
    arguments = patch["spec"]["template"]["spec"]["containers"][0]["args"]
    assert 0 == main([arguments[0], "--help"])
    words = capsys.readouterr().out.split()

    assert [] == [flag for flag in (one.partition("=")[0] for one in arguments[1:]) if flag not in words]
