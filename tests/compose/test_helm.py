"""Test the Helm chart: the objects that kustomize renders, and the values as their comments describe them."""

from __future__ import annotations

import argparse
import itertools
import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given

from support.kubernetes.chart_values import chart_values
from support.kubernetes.helm import CHART, helm, objects, template
from support.kubernetes.kustomize import built, kustomized
from support.kubernetes.schemas import validate
from support.thorough import examples
from support.tools import ROOT
from tritonwatch.cli import main
from tritonwatch.commands.exporter import settings_of
from tritonwatch.usage import VERBS

OVERLAYS = {"prometheus": "overlays/prometheus-operator", "victoria-metrics": "overlays/victoria-metrics"}


def _values() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return values


@pytest.mark.parametrize("operator", OVERLAYS)
def test_helm_renders_the_objects_that_kustomize_renders(operator: str) -> None:
    """Everything by default, rules and dashboards too; the other operator is one value."""
    wanted, rendered = (
        objects(kustomized(OVERLAYS[operator])),
        objects(template(f"--set=operator={operator}")),
    )
    boards = [key for key in wanted if key[0] == "ConfigMap"]
    for key in boards:  # kustomize's are on one line, because of a limit that Helm does not have
        for document in (wanted[key], rendered[key]):
            document["data"] = {name: json.loads(text) for name, text in document["data"].items()}

    assert 6 == len(boards)
    assert wanted == rendered


def test_helm_renders_the_web_page_that_kustomize_renders() -> None:
    """With `web.enabled` the chart adds the objects of the folder `web`, its network policy among them."""
    by_default, with_page = objects(template()), objects(template("--set=web.enabled=true"))

    assert objects(kustomized("web")) == {
        key: document for key, document in with_page.items() if key not in by_default
    }


def test_the_policy_of_the_sidecar_is_opt_in() -> None:
    """With `sidecar.networkPolicy` the chart adds the policy that the kustomize component leaves to be applied."""
    by_default, with_policy = objects(template()), objects(template("--set=sidecar.networkPolicy=true"))
    policy = yaml.safe_load((built() / "sidecar" / "network-policy.yaml").read_text())
    policy["metadata"]["namespace"] = "triton"

    assert [policy] == [document for key, document in with_policy.items() if key not in by_default]


def test_the_chart_has_the_version_of_the_package() -> None:
    """Chart, application and default images are released together."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    images = [_values()[part]["image"] for part in ("bridge", "sidecar", "web")]

    assert {version} == {
        chart["version"],
        chart["appVersion"],
        *(image.rpartition(":")[2] for image in images),
    }


def test_the_values_show_the_readiness_probe_of_the_example() -> None:
    """It is Triton's, so the chart cannot set it; test_readiness_real.py runs that of the example."""
    _, _, rest = (CHART / "values.yaml").read_text().partition("#   readinessProbe:\n")
    text = "".join(
        f"{line[4:]}\n" for line in itertools.takewhile(lambda line: line[:1] == "#", rest.splitlines())
    )
    example = yaml.safe_load((ROOT / "compose/kubernetes/example/triton.yaml").read_text())

    assert _container(example, "triton")["readinessProbe"] == yaml.safe_load(text)


def test_the_schema_accepts_the_default_values_and_names_each() -> None:
    """A value without a schema could be misspelt unseen."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    jsonschema.Draft7Validator(schema).validate(_values())
    assert set(_values()) | {"global"} == set(schema["properties"])
    for part in ("bridge", "sidecar", "rules", "web"):
        assert set(_values()[part]) == set(schema["properties"][part]["properties"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"operator": "prometeus"},
        {"bridge": {"chanel": "#x"}},
        {"bridge": {"persistence": {"size": "much"}}},
        {"sidecar": {"extraArgs": ["verbose"]}},
        {"sidecar": {"injection": {"podLabels": {}}}},
        {"objectives": {"latency": "name: latency"}},
        {"rules": {"files": {"slo": []}}},
        {"prometheusUrl": "prometheus:9090"},
        {"prometheusUrl": "http://prometheus :9090"},
        {"release": "my release"},
        {"monitoringNamespace": "Monitoring"},
        {"sidecar": {"triton": ""}},
        {"sidecar": {"injection": {"podLabels": {"a b": "c"}}}},
        {"bridge": {"existingSecret": "My_Secret"}},
        {"bridge": {"persistence": {"size": "0Gi"}}},
        {"web": {"namespaces": ["Ingress"]}},
        {"objectives": {"..yaml": "name: latency"}},
        {"rules": {"files": {"SLO": {"groups": []}}}},
    ],
    ids=str,
)
def test_the_schema_refuses_a_mistake(wrong: dict[str, Any]) -> None:
    """A misspelt key or a wrong value ends `helm install` before anything is applied."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert not jsonschema.Draft7Validator(schema).is_valid(wrong)


def _container(deployment: dict[str, Any], name: str) -> dict[str, Any]:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = (container for container in pod["containers"] if container["name"] == name)
    return dict(container)


def test_the_bridge_follows_its_values() -> None:
    """Secret, channel, options, addresses and volume are those of the values."""
    text = template(
        "--set=bridge.existingSecret=mine,bridge.channel=C0TRITON,bridge.extraArgs={--escalate-to=C0MANAGERS}",
        "--set=monitoringNamespace=observe,bridge.persistence.existingClaim=bridge-data",
        "--set=imagePullSecrets[0].name=registry",
    )
    manifests = objects(text)
    bridge = manifests["Deployment", "tritonwatch-bridge"]
    pod = bridge["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}

    assert [
        "--channel=C0TRITON",
        "--prometheus=http://prometheus-operated.observe:9090",
        "--alertmanager=http://alertmanager-operated.observe:9093",
        "--escalate-to=C0MANAGERS",
    ] == _container(bridge, "bridge")["args"][-4:]
    assert "mine" == volumes["secrets"]["secret"]["secretName"]
    assert {"claimName": "bridge-data"} == volumes["data"]["persistentVolumeClaim"]
    assert ("PersistentVolumeClaim", "tritonwatch-bridge") not in manifests
    assert [{"name": "registry"}] == pod["imagePullSecrets"]
    assert 1 == text.count('kubernetes.io/metadata.name: "observe"')


def test_the_web_page_follows_its_values(tmp_path: Path) -> None:
    """The enabled page has passwords, the objectives of the values and further options."""
    values = {"objectives": {"a.yaml": "name: a"}, "rules": {"files": {"a": {"groups": []}}}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    manifests = objects(
        template(
            f"--values={tmp_path / 'values.yaml'}",
            "--set=web.enabled=true,web.existingSecret=mine,web.extraArgs={--grafana=https://g.example}",
        )
    )
    web = manifests["Deployment", "tritonwatch-web"]
    volumes = {volume["name"]: volume for volume in web["spec"]["template"]["spec"]["volumes"]}
    arguments = _container(web, "web")["args"]

    assert ("Deployment", "tritonwatch-web") not in objects(template())
    assert "mine" == volumes["secrets"]["secret"]["secretName"]
    assert "tritonwatch-objectives" == volumes["objectives"]["configMap"]["name"]
    assert {"--web-config=/secrets/web.yml", "--objectives=/objectives"} <= set(arguments)
    assert "--grafana=https://g.example" == arguments[-1]
    assert 0 == main([*arguments, "--help"])


def test_a_triton_reaches_the_web_page() -> None:
    """The page examines the Triton that is named."""
    rendered = objects(template("--set=web.enabled=true,web.triton=http://triton-0:8000"))

    assert ["--triton=http://triton-0:8000", "--gpu=none"] == _container(
        rendered["Deployment", "tritonwatch-web"], "web"
    )["args"][-2:]


def test_what_is_disabled_is_not_rendered() -> None:
    """Each part can be left out."""
    parts = ("bridge", "sidecar", "rules", "dashboards")

    assert {} == objects(template(*(f"--set={part}.enabled=false" for part in parts)))
    kinds = {kind for kind, _ in objects(template("--set=networkPolicies.enabled=false"))}
    assert "NetworkPolicy" not in kinds
    assert "PodMonitor" in kinds


def test_generated_values_give_the_rules_of_my_objectives(tmp_path: Path) -> None:
    """`generate --format helm` writes the objectives and the rules made of them: the chart applies both."""
    arguments = ["--objectives", str(ROOT / "slo" / "objectives"), "--format", "helm", "--only", "rules"]
    assert 0 == main(["generate", *arguments, "--out", str(tmp_path)])
    values = tmp_path / "values.yaml"
    generated, shipped = objects(template(f"--values={values}")), objects(template())
    config = generated.pop(("ConfigMap", "tritonwatch-objectives"))

    assert {path.name: path.read_text() for path in (ROOT / "slo" / "objectives").glob("*.yaml")} == config[
        "data"
    ]
    assert shipped == generated


@examples(10, thorough=300)
@given(values=chart_values())
def test_every_value_that_the_schema_accepts_renders_valid_objects(
    values: dict[str, Any], tmp_path: Path
) -> None:
    """A name such as `123` or `true` stays a string, and options reach the programs as they were written."""
    # As JSON: PyYAML leaves `1e3` without quotes, which Go reads as a number.
    (tmp_path / "values.json").write_text(json.dumps(values))
    rendered = objects(template(f"--values={tmp_path / 'values.json'}"))
    for (kind, _), document in rendered.items():
        if not kind.startswith("MutatingAdmissionPolicy"):
            validate(document)

    for part in ("bridge", "web"):
        deployment = rendered.get(("Deployment", f"tritonwatch-{part}"))
        given_values = _values()[part] | values.get(part, {})
        assert given_values["enabled"] is (deployment is not None)
        if deployment:
            container = _container(deployment, part)
            options = given_values["extraArgs"]
            assert given_values["image"] == container["image"]
            assert options == container["args"][len(container["args"]) - len(options) :]
    if ("Deployment", "tritonwatch-bridge") in rendered:
        channel = (_values()["bridge"] | values.get("bridge", {}))["channel"]
        assert (
            f"--channel={channel}"
            in _container(rendered["Deployment", "tritonwatch-bridge"], "bridge")["args"]
        )


def test_objectives_without_rules_are_refused() -> None:
    """Rules of the sample objectives beside objectives of another threshold would measure something else."""
    done = helm("template", CHART, "--set=objectives.mine\\.yaml=name: mine")

    assert "tritonwatch generate --objectives DIR --format helm" in done.stderr


PARENT = """
apiVersion: v1
kind: Pod
metadata:
  name: triton
spec:
  containers:
    - {{ include "tritonwatch.sidecar.container" .Subcharts.tritonwatch | nindent 6 }}
  volumes:
    {{ include "tritonwatch.sidecar.volumes" .Subcharts.tritonwatch | nindent 4 }}
"""


def test_a_parent_chart_gets_the_same_sidecar_as_kustomize(tmp_path: Path) -> None:
    """The named templates write the container and the volume of the kustomize component."""
    example = objects(kustomized("example"))["Deployment", "triton"]
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "tritonwatch").symlink_to(CHART)
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "triton.yaml").write_text(PARENT)
    dependencies = [{"name": "tritonwatch", "version": "0.1.0"}]
    parent = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": dependencies}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(parent))
    pod = objects(template("--show-only=templates/triton.yaml", chart=tmp_path))["Pod", "triton"]["spec"]

    assert [_container(example, "tritonwatch-exporter")] == pod["containers"]
    assert all(volume in example["spec"]["template"]["spec"]["volumes"] for volume in pod["volumes"])


def test_injection_adds_the_objectives_where_there_are_some(tmp_path: Path) -> None:
    """The policy's expression contains the container, and a volume for each folder that it mounts."""
    values = {"objectives": {"a.yaml": "name: a"}, "rules": {"files": {"a": {"groups": []}}}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    text = template(f"--values={tmp_path / 'values.yaml'}", "--set=sidecar.injection.enabled=true")
    policy = objects(text)["MutatingAdmissionPolicy", "tritonwatch-exporter-triton"]
    (mutation,) = policy["spec"]["mutations"]

    assert 'dyn("--buckets-from=/objectives")' in mutation["jsonPatch"]["expression"]
    assert 3 == mutation["jsonPatch"]["expression"].count('path: "/spec/volumes')


def test_processes_are_shared_where_they_are_asked_for() -> None:
    """The injected exporter runs as Triton's user, sees its processes, and mounts its /dev/shm; none by default."""
    switch = "sidecar.processes"
    asked = [f"--set={switch}.enabled=true", f"--set={switch}.runAsUser=0", f"--set={switch}.shmVolume=shm"]
    by_default, shared = (
        objects(template("--set=sidecar.injection.enabled=true", *more))[
            "MutatingAdmissionPolicy", "tritonwatch-exporter-triton"
        ]["spec"]["mutations"][0]["jsonPatch"]["expression"]
        for more in ([], asked)
    )

    for part in ("/spec/shareProcessNamespace", "/dev/shm", "SYS_PTRACE", '"runAsUser": dyn(0)'):
        assert part in shared
        assert part not in by_default
    assert '"runAsUser": dyn(10001)' in by_default


def test_a_triton_without_a_sidecar_gets_an_exporter_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those outside the cluster, from the list of the project file: the same monitor scrapes each, under the address
    of its Triton; an exporter that runs elsewhere is not started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tritonwatch.yaml").write_text(
        f"objectives: {ROOT / 'slo' / 'objectives'}\nout: helm-values\ntritons:\n"
        "- gpu-box:9401=http://gpu-box.example:8000\n- b:9401=http://b:8010,http://b:8012\n"
        "- 127.0.0.1:9401=http://127.0.0.1:8000\n"
    )
    assert 0 == main(["generate", "--format", "helm", "--only", "rules"])
    text = template("--values=helm-values/values.yaml", "--set=sidecar.extraArgs={--probe=*}")
    by_default, manifests = objects(template()), objects(text)
    exporters = {
        name: document
        for (kind, name), document in manifests.items()
        if kind == "Deployment" and (kind, name) not in by_default
    }
    added = exporters.pop("tritonwatch-exporter-gpu-box")
    [(other, second)] = exporters.items()
    assert "tritonwatch-exporter-b" == other
    assert "--triton-metrics=http://b:8012/metrics" in _container(second, "tritonwatch-exporter")["args"]
    validate(added)
    validate(manifests["PodMonitor", "triton-exporter"])
    pod = added["spec"]["template"]
    container = _container(added, "tritonwatch-exporter")
    [monitored] = manifests["PodMonitor", "triton-exporter"]["spec"]["podMetricsEndpoints"]
    [_, of_pod, of_triton] = monitored["relabelings"]

    assert ("Deployment", "tritonwatch-exporter-gpu-box", 1) == (
        added["kind"],
        added["metadata"]["name"],
        added["spec"]["replicas"],
    )
    assert {"tritonwatch.dev/scrape": "true"}.items() <= pod["metadata"]["labels"].items()
    assert "gpu-box.example:8000" == pod["metadata"]["annotations"]["tritonwatch.dev/instance"]
    assert ["__meta_kubernetes_pod_annotation_tritonwatch_dev_instance"] == of_triton["sourceLabels"]
    assert "instance" == of_pod["targetLabel"] == of_triton["targetLabel"]
    # What the options say, the exporter understands: as its command line reads them.
    parser = argparse.ArgumentParser()
    VERBS["exporter"].configure(parser)
    settings = settings_of(
        parser.parse_args(
            [
                word.replace("/objectives", str(ROOT / "slo" / "objectives"))
                for word in container["args"][1:]
                if word[-1] != "="
            ]
        )
    )
    assert ("http://gpu-box.example:8000", "http://gpu-box.example:8002/metrics", ()) == (
        settings.triton,
        settings.metrics_url,
        settings.probe,
    )
