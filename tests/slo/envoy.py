"""Run a real Envoy before a real Triton."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
import yaml

from support.loopback import free_ports, started
from triton_exporter.catalogue.external import gateway

ENVOY = Path(sys.executable).with_name("envoy")


@contextmanager
def envoy(upstream: str, directory: Path, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Run an Envoy with a cluster and a virtual cluster for each model, and yield its URL and admin address.

    Nothing listens behind the cluster `gone`.
    """
    port, admin, nobody = free_ports(3)
    host, _, triton = upstream.removeprefix("http://").partition(":")

    def socket(number: int) -> dict[str, object]:
        return {"socket_address": {"address": host, "port_value": number}}

    def cluster(name: str, number: int) -> dict[str, object]:
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": socket(number)}}]}]
        assignment = {"cluster_name": name, "endpoints": endpoints}
        return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": assignment}

    kind = "type.googleapis.com/envoy.extensions.filters"
    host_of_all = {
        "name": "triton",
        "domains": ["*"],
        "routes": [
            {"match": {"prefix": f"/v2/models/{name}/"}, "route": {"cluster": name, "timeout": "5s"}}
            for name in names
        ],
        "virtual_clusters": [
            {"name": name, "headers": [{"name": ":path", "string_match": {"prefix": f"/v2/models/{name}/"}}]}
            for name in names
        ],
    }
    router = {"name": "router", "typed_config": {"@type": f"{kind}.http.router.v3.Router"}}
    manager = {
        "@type": f"{kind}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [host_of_all]},
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    config = {
        "admin": {"address": socket(admin)},
        "static_resources": {
            "listeners": [{"address": socket(port), "filter_chains": [chain]}],
            "clusters": [cluster(name, nobody if name == "gone" else int(triton)) for name in names],
        },
    }
    (directory / "envoy.yaml").write_text(yaml.safe_dump(config))
    command = (ENVOY, "-c", directory / "envoy.yaml", "--disable-hot-restart", "-l", "error")
    with started((*command, "--concurrency", 1), f"http://{host}:{admin}/ready", directory / "envoy.log"):
        yield f"http://{host}:{port}", f"{host}:{admin}"


def envoy_counters(admin: str) -> Counter[str]:
    """Return requests by model and status as Envoy exposes them."""
    page = requests.get(f"http://{admin}/stats/prometheus", timeout=9).text
    series = rf'^{gateway.ENVOY_REQUESTS}{{envoy_response_code="(\d+)",envoy_cluster_name="(\w+)"}} (\d+)$'
    return Counter(
        {f"{model} {code}": int(count) for code, model, count in re.findall(series, page, re.MULTILINE)}
    )
