"""Alertmanager's configuration: who hears of what, how alerts are bundled, and which silence others."""

from __future__ import annotations

from typing import Any

from triton_alerts import document, promql
from triton_alerts.inhibition import INHIBITIONS, Inhibition
from triton_slo.artifact import Options

_MIN_REPEAT_SECONDS = 600
"""A reminder sooner than this is noise, whatever the time scale."""


def render(options: Options) -> str:
    """The configuration file, at the options' time scale."""
    return document.render(config(options))


def config(options: Options) -> dict[str, Any]:
    """The configuration as Alertmanager reads it from YAML."""
    return {
        "global": {"resolve_timeout": "5m"},
        "route": _root(options),
        "inhibit_rules": [_inhibit_rule(one) for one in INHIBITIONS],
        "receivers": [
            {"name": "ticket", "webhook_configs": [_webhook(options)]},
            {"name": "page", "webhook_configs": [_webhook(options)]},
            {"name": "watchdog", "webhook_configs": [_webhook(options, send_resolved=False)]},
            {"name": "none"},
        ],
    }


def _root(options: Options) -> dict[str, Any]:
    return {
        "receiver": "ticket",
        # What one person would repair together: a model wherever it runs, else a server.
        "group_by": ["model"],
        **_times(options, "30s", "5m", "12h"),
        "routes": [
            {
                "receiver": "watchdog",
                "matchers": ['alertname="Watchdog"'],
                "group_by": ["alertname"],
                **_times(options, "1s", "1m", "1m"),
                "repeat_interval": "1m",
            },
            {"receiver": "none", "matchers": ['severity=~"none|info"']},
            {
                "receiver": "page",
                "matchers": ['severity="critical"'],
                **_times(options, "30s", "1m", "4h"),
                "routes": [{"matchers": ['model=""'], "group_by": ["instance"]}],
            },
            {"receiver": "ticket", "matchers": ['model=""'], "group_by": ["instance"]},
        ],
    }


def _times(options: Options, wait: str, interval: str, repeat: str) -> dict[str, str]:
    repeat_seconds = max(promql.seconds(repeat) * options.time_scale, _MIN_REPEAT_SECONDS)
    return {
        "group_wait": promql.scaled(wait, options),
        "group_interval": promql.scaled(interval, options),
        "repeat_interval": promql.duration(repeat_seconds),
    }


def _webhook(options: Options, *, send_resolved: bool = True) -> dict[str, Any]:
    return {"url": options.webhook_url, "send_resolved": send_resolved}


def _inhibit_rule(one: Inhibition) -> dict[str, Any]:
    return {
        "source_matchers": list(one.source),
        "target_matchers": list(one.target),
        "equal": list(one.equal),
    }
