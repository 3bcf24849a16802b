"""Test the Kubernetes manifests: complete lists, valid kinds, rules equal to the rule files."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.kubernetes.kustomize import built, kustomized
from support.kubernetes.schemas import is_core, operators, validate
from support.promtool import evaluated
from support.tools import ROOT, promtools
from triton_exporter.catalogue import EXPORTER_JOB
from triton_slo.bridge_series import BRIDGE_JOB
from tritonwatch.cli import main

OVERLAYS = (
    "overlays/prometheus-operator",
    "overlays/victoria-metrics",
    "overlays/remote-write",
    "example",
    "web",
)


def _documents() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(built().rglob("*.y*ml")):
        if path.name in ("kustomization.yaml", "exporter.yaml", "adapter-rule.yaml"):
            continue
        for document in yaml.safe_load_all(path.read_text()):
            yield path, document


@functools.cache
def _rendered(overlay: str) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.load_all(kustomized(overlay), yaml.CSafeLoader))


def test_core_kinds_keep_the_schemas_of_kubernetes() -> None:
    """Every Deployment, Service, ConfigMap, policy and autoscaler is valid, strictly."""
    kinds = set()
    for _, document in _documents():
        if is_core(document):
            kinds.add(document["kind"])
            validate(document)

    assert {"Deployment", "Service", "ConfigMap", "NetworkPolicy", "HorizontalPodAutoscaler"} <= kinds


def test_the_operators_kinds_keep_their_schemas() -> None:
    """Every monitor, rule, agent and scaled object is what its operator knows, with no key more."""
    kinds = set()
    for path, document in _documents():
        if is_core(document):
            continue
        assert document["kind"] in operators(), f"{path}: no schema checks {document['kind']}"
        kinds.add(document["kind"])
        errors = operators()[document["kind"]].iter_errors(document)
        assert [] == [f"{path}: {error.json_path}: {error.message}" for error in errors]

    assert set(operators()) == kinds


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

    assert not operators()[kind].is_valid(document)


def test_a_mistake_in_a_manifest_is_found() -> None:
    """The schemas are really asked: a misspelt field fails."""
    _, deployment = next(pair for pair in _documents() if pair[1]["kind"] == "Deployment")
    deployment["spec"]["replicsa"] = 1

    with pytest.raises(kubernetes_validate.ValidationError):
        validate(deployment)


def test_the_rules_are_those_of_the_rule_files() -> None:
    """Kubernetes and Prometheus are given the same groups."""
    for path in (ROOT / "alerts" / "generated" / "rules").glob("*.yml"):
        ours = yaml.safe_load((built() / "rules" / path.name).read_text())

        assert yaml.safe_load(path.read_text())["groups"] == ours["spec"]["groups"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_an_overlay_renders_is_valid(overlay: str) -> None:
    """After all patches, every object is valid and in the namespace, and every object it names exists."""
    documents = _rendered(overlay)
    for document in documents:
        validate(document)
    assert {"triton"} == {document["metadata"].get("namespace") for document in documents}
    accounts = {
        document["metadata"]["name"] for document in documents if document["kind"] == "ServiceAccount"
    }
    assert [] == [name for name in _values(documents, "serviceAccountName") if name not in accounts]


def _values(value: object, key: str) -> Iterator[Any]:
    """Every value of a key, at any depth."""
    if isinstance(value, dict):
        yield from (inner for name, inner in value.items() if name == key)
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _values(inner, key)


def _pods() -> list[dict[str, Any]]:
    """Return the pods of the example, of the base and of the web page, as they would run."""
    return [document["spec"]["template"] for document in _running() if document["kind"] == "Deployment"]


def _running() -> tuple[dict[str, Any], ...]:
    return (*_rendered("example"), *_rendered(OVERLAYS[0]), *_rendered("web"))


def _selected(selector: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = selector["matchLabels"].items()
    return [pod for pod in _pods() if wanted <= pod["metadata"]["labels"].items()]


def _container_ports(pods: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {
        (port["name"], port["containerPort"])
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container["ports"]
    }


def test_the_example_shares_its_processes_with_the_component_for_it() -> None:
    """The exporter then sees Triton's processes, and mounts the same /dev/shm."""
    folder = built() / "shared-processes"
    folder.mkdir()
    components = {"resources": ["../example"], "components": ["../processes"]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(components))
    (deployment,) = [document for document in _rendered(folder.name) if document["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert ["triton", "tritonwatch-exporter"] == sorted(container["name"] for container in pod["containers"])
    mounts = [
        next(mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/dev/shm")
        for container in pod["containers"]
    ]

    assert pod["shareProcessNamespace"]
    assert ["shm", "shm"] == mounts


@pytest.mark.parametrize("overlay", OVERLAYS[:3])
def test_every_monitor_finds_its_pods(overlay: str) -> None:
    """Labels, port names and the jobs of the rules match; otherwise nothing is scraped, without an error."""
    monitors = [
        document["spec"]
        for document in _rendered(overlay)
        if document["kind"] in ("PodMonitor", "VMPodScrape")
    ]
    jobs = set()
    for monitor in monitors:
        pods = _selected(monitor["selector"])
        assert pods, monitor["selector"]
        (endpoint,) = monitor["podMetricsEndpoints"]
        assert endpoint["port"] in {name for name, _ in _container_ports(pods)}
        relabelings = endpoint.get("relabelings") or endpoint["relabelConfigs"]
        jobs |= {
            relabeling["replacement"] for relabeling in relabelings if relabeling["targetLabel"] == "job"
        }

    assert ({EXPORTER_JOB} if overlay.endswith("remote-write") else {EXPORTER_JOB, BRIDGE_JOB}) == jobs


def test_the_sidecar_asks_the_dcgm_exporter_of_its_own_node() -> None:
    """The address it is given is the Service's, which hands out no pod of another node."""
    (service,) = _rendered("gpu")
    validate(service)
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    (port,) = service["spec"]["ports"]
    arguments = [word for words in _values(_rendered("example"), "args") for word in words]

    assert f"--dcgm-url=http://{name}.{namespace}:{port['port']}/metrics" in arguments
    assert "Local" == service["spec"]["internalTrafficPolicy"]


DENY_ALL = {"podSelector": {}, "policyTypes": ["Ingress"]}
CLIENTS = {
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "triton"}},
    "policyTypes": ["Ingress"],
    "ingress": [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "clients"}}}],
            "ports": [{"port": 8000}],
        }
    ],
}
"""A policy of the user's for Triton's clients."""


def _reachable(pod: dict[str, Any], *policies: dict[str, Any]) -> set[tuple[str, int]]:
    """Return (namespace, port) of what a cluster lets through to a pod.

    A pod that no policy selects is open. Otherwise policies add up: what one allows, no other closes.
    """
    labels = pod["metadata"]["labels"].items()
    selecting = [
        policy for policy in policies if policy["podSelector"].get("matchLabels", {}).items() <= labels
    ]
    rules = [rule for policy in selecting for rule in policy.get("ingress", ())]

    def allows(rule: dict[str, Any], namespace: str, port: int) -> bool:
        name = {"kubernetes.io/metadata.name": namespace}
        peers = rule.get("from", [{"namespaceSelector": {}}])
        return any(peer["namespaceSelector"].get("matchLabels", name) == name for peer in peers) and any(
            one.get("port", port) <= port <= one.get("endPort", one.get("port", port))
            for one in rule.get("ports", [{}])
            if one.get("protocol", "TCP") == "TCP"
        )

    return {
        (namespace, port)
        for namespace in ("monitoring", "clients", "elsewhere")
        for port in (8000, 8001, 8002, *(port for _, port in _container_ports([pod])))
        if not selecting or any(allows(rule, namespace, port) for rule in rules)
    }


def _policies(documents: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [document["spec"] for document in documents if document["kind"] == "NetworkPolicy"]


def test_network_policies_guard_our_ports_and_leave_tritons_alone() -> None:
    """Bridge and web page are for the monitoring namespace; no policy selects Triton's pod unasked."""
    for document in _running():
        if document["kind"] == "Deployment":
            pod = document["spec"]["template"]
            reachable = _reachable(pod, *_policies(_running()))
            if document["metadata"]["name"] == "triton":
                assert reachable == _reachable(pod)
            else:
                assert {("monitoring", port) for _, port in _container_ports([pod])} == reachable


def test_under_a_default_deny_the_sidecars_policy_opens_the_exporter_alone() -> None:
    """Policies are a union of what they allow: ours must not open to everyone what the user closed."""
    ours = yaml.safe_load((built() / "sidecar" / "network-policy.yaml").read_text())["spec"]
    (triton,) = [one["spec"]["template"] for one in _rendered("example") if one["kind"] == "Deployment"]

    assert {("monitoring", 9401)} == _reachable(triton, DENY_ALL, ours)
    assert {("monitoring", 9401), ("clients", 8000)} == _reachable(triton, DENY_ALL, CLIENTS, ours)


def test_monitors_are_the_same_in_both_overlays_that_use_them() -> None:
    """kustomize cannot read outside a folder, so one file exists twice; both must be the same."""
    first, other = (
        built() / "overlays" / name / "pod-monitor.yaml" for name in ("prometheus-operator", "remote-write")
    )

    assert first.read_bytes() == other.read_bytes()


def _autoscaling() -> tuple[str, str]:
    """KEDA's query, and prometheus-adapter's with its placeholders filled as it fills them for two pods."""
    keda = yaml.safe_load((built() / "autoscaling" / "keda.yaml").read_text())
    rule = yaml.safe_load((built() / "autoscaling" / "adapter-rule.yaml").read_text())[0]
    matchers = 'namespace="triton",pod=~"busy|idle"'
    adapter = rule["metricsQuery"].replace("<<.LabelMatchers>>", matchers).replace("<<.GroupBy>>", "pod")
    return keda["spec"]["triggers"][0]["metadata"]["query"], adapter


@pytest.mark.parametrize("promtool", promtools(), ids=str)
@pytest.mark.parametrize(
    ("pods", "over_all"),
    [
        pytest.param({"busy": 0.3, "idle": 0}, [0.3], id="one busy"),
        pytest.param({"busy": 0, "idle": 0}, [0], id="all idle"),
        pytest.param({}, [], id="no data"),
    ],
)
def test_the_autoscalers_see_the_queue(
    promtool: Path, pods: dict[str, float], over_all: list[float], tmp_path: Path
) -> None:
    """10 requests a second that wait 0.3 s are 0.3; no traffic is 0; without data there is no result."""
    series = {}
    for pod, waited in pods.items():
        labels = f'{{namespace="triton",pod="{pod}"}}'
        series[f"triton_model_queue_duration_seconds_sum{labels}"] = f"0+{waited * 150}x40"
        series[f"triton_model_queue_duration_seconds_count{labels}"] = f"0+{150 if waited else 0}x40"
    asked = [(query, 540.0) for query in _autoscaling()]
    whole, each = evaluated(promtool, tmp_path, "groups: []", series, asked, interval=15, evaluation=60)

    assert [({}, pytest.approx(value)) for value in over_all] == whole
    assert pytest.approx(pods) == {labels["pod"]: value for labels, value in each}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_our_containers_are_started_with_flags_that_exist(
    overlay: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every flag of the exporter and the bridge, in overlays too, is in the help of its verb."""
    containers = [container for value in _values(_rendered(overlay), "containers") for container in value]
    for container in (one for one in containers if "/tritonwatch/" in one["image"]):
        verb, *flags = container["args"]
        assert 0 == main([verb, "--help"])
        words = capsys.readouterr().out.replace("[", " ").replace("]", " ").split()
        assert [] == [flag for flag in flags if flag.partition("=")[0] not in words]
