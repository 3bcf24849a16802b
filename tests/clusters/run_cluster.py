"""Apply manifests and chart to a real Kubernetes API with a real operator; `make verify-kubernetes` runs it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from hypothesis import given

from clusters.cluster import TOOLS, Cluster, cluster, operator
from support.kubernetes.chart_values import chart_values
from support.kubernetes.helm import CHART, find_helm, objects, template
from support.kubernetes.kustomize import built, kustomized
from support.thorough import examples
from support.tools import ROOT, amtools, promtools
from support.waiting import eventually
from triton_exporter.catalogue import EXPORTER_JOB
from triton_slo.bridge_series import BRIDGE_JOB
from tritonwatch.cli import main

MONITORING = "tritonwatch-verify"
PART = "app.kubernetes.io/part-of=tritonwatch"
WEBHOOK = "http://tritonwatch-bridge.triton:9096/alertmanager"
SERVERS = f"""
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {{name: main, namespace: {MONITORING}}}
spec:
  alerting: {{alertmanagers: [{{namespace: {MONITORING}, name: alertmanager-operated, port: web}}]}}
  podMonitorSelector: {{matchLabels: {{release: kube-prometheus-stack}}}}
  podMonitorNamespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: triton}}}}
  ruleSelector: {{matchLabels: {{release: kube-prometheus-stack}}}}
  ruleNamespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: triton}}}}
---
apiVersion: monitoring.coreos.com/v1
kind: Alertmanager
metadata: {{name: main, namespace: {MONITORING}}}
spec:
  replicas: 1
  configSecret: tritonwatch-alertmanager
  secrets: [tritonwatch-bridge]
"""
HOSTILE = [
    "--option=b: c # d",
    "--option=\"quoted\" 'and' \\",
    "--option=line\nbreak",
    "--option={{ .x }} <&> ü",
]
"""Options that YAML, Go templates, JSON and CEL would each write in another way."""
POD = """
apiVersion: v1
kind: Pod
metadata: {generateName: triton-, labels: {app.kubernetes.io/name: triton}}
spec: {containers: [{name: triton, image: triton}]}
"""


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster with everything that the Kubernetes page applies, and the operator at work."""
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder) as running:
        for name in ("triton", MONITORING):
            assert running.find("default", "namespace", name) is None, f"the cluster has a namespace {name}"
        for path in sorted((TOOLS / "crds").glob("*.yaml")):
            name = re.findall(r"^  name: (\S+)$", path.read_text(), re.MULTILINE)[0]
            if running.find("default", "crd", name) is None:
                running.apply("-f", path)
        running.run("kubectl", "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        try:
            _apply(running, folder)
            with operator(running, folder, "triton", MONITORING):
                yield running
        finally:
            running.run("kubectl", "delete", "namespace", "triton", MONITORING, "--wait=false")


def _apply(target: Cluster, folder: Path) -> None:
    for name in ("triton", MONITORING):
        target.run("kubectl", "create", "namespace", name)
    for overlay in ("overlays/prometheus-operator", "web", "example", "overlays/remote-write"):
        target.apply("-k", built() / overlay)
    # The cluster may have a namespace of this name with the real dcgm-exporter in it.
    target.apply("-f", "-", stdin=kustomized("gpu").replace("namespace: gpu-operator", "namespace: triton"))
    for name in ("hpa.yaml", "keda.yaml"):
        target.apply("-n", "triton", "-f", built() / "autoscaling" / name)
    arguments = ["--objectives", str(ROOT / "slo" / "objectives"), "--only", "alertmanager"]
    token = "/etc/alertmanager/secrets/tritonwatch-bridge/token"
    out = folder / "alertmanager"
    assert 0 == main(
        ["generate", *arguments, "--webhook-url", WEBHOOK, "--webhook-token-file", token, "--out", str(out)]
    )
    files = (f"--from-file=alertmanager.yaml={out}/alertmanager.yml", f"--from-file={out}/tritonwatch.tmpl")
    login = ("--from-literal=username=u", "--from-literal=password=p")
    secret = ("kubectl", "create", "secret", "generic")
    target.run(*secret, "tritonwatch-bridge", "--from-literal=token=secret", "-n", MONITORING)
    target.run(*secret, "tritonwatch-alertmanager", *files, "-n", MONITORING)
    target.run(*secret, "tritonwatch-remote-write", *login, "-n", "triton")
    target.apply("-f", "-", stdin=SERVERS)


def _configuration(target: Cluster, name: str, file: str, namespace: str = MONITORING) -> str:
    """Return what the operator makes of our objects, once it has."""
    return eventually(
        lambda: target.secret(namespace, name).get(file), f"the operator wrote no secret {name}"
    )


def test_the_operator_makes_a_configuration_that_promtool_accepts(applied: Cluster, tmp_path: Path) -> None:
    """Prometheus gets our jobs and every rule, with the job names that the rules select."""
    rules = eventually(
        lambda: applied.find(MONITORING, "configmap", "prometheus-main-rulefiles-0"), "no rules"
    )["data"]
    for name, text in rules.items():
        (tmp_path / name).write_text(text)
    made = eventually(
        lambda: (
            text
            if EXPORTER_JOB in (text := _configuration(applied, "prometheus-main", "prometheus.yaml"))
            else None
        ),
        "no job of ours",
    )
    # The operator's reloader fills in the variable, and the folder is that of the pod.
    folder = "/etc/prometheus/rules/prometheus-main-rulefiles-0"
    made = made.replace(folder, str(tmp_path)).replace("$(SHARD)", "0")
    configuration = yaml.safe_load(made)
    whole, without = tmp_path / "whole.yml", tmp_path / "without.yml"
    whole.write_text(made)
    discovery = [job.pop("kubernetes_sd_configs") for job in configuration["scrape_configs"]]
    assert [[{"role": "pod", "namespaces": {"names": ["triton"]}}]] * 2 == discovery
    assert configuration.pop("alerting")
    without.write_text(yaml.safe_dump(configuration))
    # Debian builds Prometheus without the discovery of Kubernetes.
    checks = [(promtool, without) for promtool in promtools()]
    checks += [(upstream, whole)] if (upstream := TOOLS / "promtool").exists() else []
    for promtool, config in checks:
        done = subprocess.run([promtool, "check", "config", config], capture_output=True, text=True)
        print(done.stdout)
        assert 0 == done.returncode, done.stdout + done.stderr
        assert f"{len(rules)} rule files found" in done.stdout

    jobs = {
        relabeling["replacement"]
        for job in configuration["scrape_configs"]
        for relabeling in job["relabel_configs"]
        if relabeling.get("target_label") == "job" and relabeling.get("action") == "replace"
    }
    assert {EXPORTER_JOB, BRIDGE_JOB} == jobs
    committed = [path for path in (built() / "rules").glob("*.yml") if path.name != "kustomization.yaml"]
    assert _rules(yaml.safe_load(path.read_text())["spec"] for path in committed) == _rules(
        yaml.safe_load(text) for text in rules.values()
    )


def _rules(files: Any) -> list[str]:
    """Return the names of all rules, sorted."""
    return sorted(
        rule.get("alert") or rule["record"]
        for file in files
        for group in file["groups"]
        for rule in group["rules"]
    )


def test_pages_and_tickets_are_sent_to_the_service_of_the_bridge(applied: Cluster, tmp_path: Path) -> None:
    """Alertmanager's configuration, as the operator writes it, routes to an address that a Service serves."""
    made = _configuration(applied, "alertmanager-main-generated", "alertmanager.yaml")
    (tmp_path / "alertmanager.yml").write_text(made)
    (tmp_path / "tritonwatch.tmpl").write_text(
        _configuration(applied, "alertmanager-main-generated", "tritonwatch.tmpl")
    )
    addresses = {
        receiver["name"]: {hook["url"] for hook in receiver.get("webhook_configs", [])}
        for receiver in yaml.safe_load(made)["receivers"]
    }
    for amtool in amtools():
        config = f"--config.file={tmp_path / 'alertmanager.yml'}"
        subprocess.run([amtool, "check-config", str(tmp_path / "alertmanager.yml")], check=True)
        for severity in ("page", "warning"):
            words = [str(amtool), "config", "routes", "test", config, f"severity={severity}", "component=slo"]
            receivers = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
            print(severity, receivers)
            assert {WEBHOOK} == addresses[receivers[0].split(",")[0]]

    host, port = urlsplit(WEBHOOK).hostname or "", urlsplit(WEBHOOK).port
    service = applied.find(host.split(".")[1], "service", host.split(".")[0])["spec"]
    pods = applied.find("triton", "deployment", "tritonwatch-bridge")["spec"]["template"]
    assert [port] == [port["port"] for port in service["ports"]]
    assert service["selector"].items() <= pods["metadata"]["labels"].items()


def test_the_agent_writes_to_its_remote_storage(applied: Cluster) -> None:
    """The overlay for remote write is reconciled too, with the secret that its page names."""
    made = _configuration(applied, "prom-agent-tritonwatch", "prometheus.yaml", "triton")

    assert ["https://mimir.example/api/v1/push"] == [
        write["url"] for write in yaml.safe_load(made)["remote_write"]
    ]


def _injection(cluster: Cluster) -> list[str]:
    """Options that let the chart use the policies of this API server; none where it has no such policies."""
    resources = cluster.run("kubectl", "api-resources", "--no-headers")
    versions = re.findall(
        r"(admissionregistration\.k8s\.io/\S+)\s+\S+\s+(MutatingAdmissionPolicy)\b", resources
    )
    return [f"--api-versions={version}/{kind}" for version, kind in versions]


@examples(15, thorough=300)
@given(values=chart_values())
def test_the_server_accepts_what_any_values_render(
    applied: Cluster, tmp_path: Path, values: dict[str, Any]
) -> None:
    """The API server checks every object, the expression of the injection's policy among them."""
    assert find_helm()
    (tmp_path / "values.json").write_text(json.dumps(values))
    versions = _injection(applied)
    text = template(f"--values={tmp_path / 'values.json'}", f"--namespace={MONITORING}", *versions)
    unknown = {"VMPodScrape"} | (
        set() if versions else {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    )
    rendered = [document for (kind, _), document in objects(text).items() if kind not in unknown]
    if rendered:
        listed = {"apiVersion": "v1", "kind": "List", "items": rendered}
        # As JSON: PyYAML leaves `Y` without quotes, which kubectl reads as a bool.
        applied.apply("--dry-run=server", "-f", "-", stdin=json.dumps(listed))


def _older_chart(folder: Path) -> Path:
    """Write the chart as it was before the web page; return its folder."""
    shutil.copytree(CHART, folder)
    values = yaml.safe_load((folder / "values.yaml").read_text())
    del values["web"]
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    for name in ("web.yaml", "network-policies.yaml"):
        (folder / "templates" / name).unlink()
    return folder


def test_helm_installs_upgrades_and_uninstalls(applied: Cluster, tmp_path: Path) -> None:
    """A new pod of Triton gets the exporter; an upgrade keeps values and adds new ones; nothing remains."""
    helm = find_helm()
    injects = bool(_injection(applied))
    namespace = ("--namespace", MONITORING)
    sidecar = {"injection": {"enabled": injects}, "extraArgs": HOSTILE}
    (tmp_path / "values.json").write_text(json.dumps({"sidecar": sidecar, "web": {"enabled": True}}))
    older = _older_chart(tmp_path / "older")
    applied.run(helm, "install", "tritonwatch", older, *namespace, f"--values={tmp_path / 'values.json'}")
    if injects:
        create = ("kubectl", "-n", MONITORING, "create", "-f", "-", "-o", "json", "--dry-run=server")

        def exporter() -> Any:
            containers = json.loads(applied.run(*create, stdin=POD))["spec"]["containers"]
            return next(
                (container for container in containers if container["name"] == "tritonwatch-exporter"), None
            )

        # The API server reads a new policy within seconds.
        assert HOSTILE == eventually(exporter, "the pod got no exporter")["args"][-len(HOSTILE) :]
    else:
        print("this cluster has no MutatingAdmissionPolicy: injection was not tried")
    applied.run(
        helm,
        "upgrade",
        "tritonwatch",
        CHART,
        *namespace,
        "--reset-then-reuse-values",
        "--set=bridge.channel=C0TRITON",
    )
    bridge = applied.find(MONITORING, "deployment", "tritonwatch-bridge")["spec"]["template"]["spec"]
    assert "--channel=C0TRITON" in bridge["containers"][0]["args"]
    assert applied.find(MONITORING, "networkpolicy", "tritonwatch-web"), (
        "a part that the older chart did not have"
    )
    applied.run(helm, "uninstall", "tritonwatch", *namespace)
    for kind in ("deployment", "service", "networkpolicy", "podmonitor", "prometheusrule"):
        assert (
            []
            == json.loads(applied.run("kubectl", *namespace, "get", kind, "-l", PART, "-o", "json"))["items"]
        )
