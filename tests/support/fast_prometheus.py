"""Run a real Prometheus with the generated rules, 360 times faster than in production."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import requests

from support.files import write
from support.loopback import free_ports, started
from support.waiting import eventually
from triton_alerts.catalogue import ALERTS
from triton_slo.artifact import Artifact
from tritonwatch.local import prometheus_command, prometheus_config

_Value = TypeVar("_Value")

SCALE = 1 / 360
INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class FastPrometheus:
    """A running Prometheus, and what its alerts did."""

    url: str

    def alerts(self, name: str, **labels: str) -> list[dict[str, Any]]:
        """Return the alerts of this name that fire now and carry these labels."""
        alerts = requests.get(f"{self.url}/api/v1/alerts", timeout=5).json()["data"]["alerts"]
        wanted = {"alertname": name, **labels}.items()
        return [alert for alert in alerts if alert["state"] == "firing" and wanted <= alert["labels"].items()]

    def wait_cause(self, cause: str, name: str, **labels: str) -> None:
        """Wait until such an alert fires, and the bridge finds this cause of it."""
        (lookup,) = [alert.cause_from for alert in ALERTS if alert.name == name and alert.cause_from]

        def found() -> bool:
            return any(
                cause
                == lookup.cause(sample["metric"] for sample in self.samples(lookup.about(alert["labels"])))
                for alert in self.alerts(name, **labels)
            )

        self.until(found, f"{name} {labels} never had the cause {cause}")

    def wait(self, name: str, **labels: str) -> dict[str, Any]:
        """Wait until such an alert fires."""
        return self.until(lambda: self.alerts(name, **labels), f"{name} {labels} never fired")[0]

    def wait_gone(self, name: str, **labels: str) -> None:
        """Wait until no such alert fires."""
        self.until(lambda: not self.alerts(name, **labels), f"{name} {labels} never ended")

    def samples(self, query: str) -> list[dict[str, Any]]:
        """Return what the query has now."""
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=5)
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def wait_seen(self, query: str) -> None:
        """Wait until Prometheus has scraped what the query asks for."""
        self.until(lambda: self.samples(query), f"{query} was never seen")

    def until(self, condition: Callable[[], _Value | None], otherwise: str) -> _Value:
        """Return what the condition has once it is true; fail with all alerts there are."""

        def there_are() -> str:
            alerts = requests.get(f"{self.url}/api/v1/alerts", timeout=5).json()["data"]["alerts"]
            names = sorted(f"{alert['state']} {alert['labels']}" for alert in alerts)
            return f"{otherwise}; there are:\n" + "\n".join(names)

        return eventually(condition, there_are)


@contextmanager
def fast_prometheus(
    exporter_url: str, made: Sequence[Artifact], directory: Path, interval_seconds: float = INTERVAL_SECONDS
) -> Iterator[FastPrometheus]:
    """Run a Prometheus that scrapes the exporter and evaluates the rules among `made` every second, or so often."""
    write(made, directory)
    (port, nobody) = free_ports(2)
    config = directory / "prometheus.yml"
    config.write_text(
        prometheus_config(
            exporter_url.removeprefix("http://"),
            f"127.0.0.1:{nobody}",
            [str(directory / "rules" / "*.yml")],
            {},
            interval_seconds,
        )
    )
    command = prometheus_command(config, directory / "prometheus", port)
    url = f"http://127.0.0.1:{port}"
    with started(command, f"{url}/-/ready", directory / "prometheus.log"):
        yield FastPrometheus(url)
