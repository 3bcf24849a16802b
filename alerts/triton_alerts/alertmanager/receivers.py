"""Receivers of Alertmanager: the bridge's webhook, and the fallback that must not be Slack.

Secrets are named by file, never written into the configuration.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from triton_slo.objective import zone

_HOURS = re.compile(r"(?P<days>[a-z:, ]+?)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)(?:\s+(?P<place>\S+))?")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00")
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""In the order of Alertmanager, whose ranges do not go beyond the end of the week."""
_EXAMPLE = "monday:friday 08:00-18:00 Europe/Berlin"


def webhook(url: str, token_file: str) -> dict[str, Any]:
    """Return a webhook that is sent resolved alerts too; `token_file` contains its bearer token."""
    made: dict[str, Any] = {"url": url, "send_resolved": True}
    if token_file:
        made["http_config"] = {"authorization": {"type": "Bearer", "credentials_file": token_file}}
    return made


def fallback_receiver(address: str) -> dict[str, Any]:
    """Return the receiver for an address in one of three schemes. Raises ValueError on any other."""
    parts = urlsplit(address)
    match parts.scheme:
        case "http" | "https" if parts.hostname:
            integration = {"webhook_configs": [webhook(address, "")]}
        case "pagerduty" if parts.path:
            integration = {"pagerduty_configs": [_pagerduty(unquote(parts.path))]}
        case "mailto" if parts.path:
            integration = {"email_configs": [_email(parts.path, parse_qs(parts.query))]}
        case _:
            raise ValueError(
                f"fallback {address!r} is none of https://..., pagerduty:///FILE, mailto:ADDRESS?..."
            )
    return {"name": "fallback", **integration}


def _pagerduty(key_file: str) -> dict[str, Any]:
    return {
        "routing_key_file": key_file,
        "send_resolved": True,
        "description": '{{ template "triton.title" . }}',
        "details": {"text": '{{ template "triton.text" . }}'},
    }


def _email(to: str, query: dict[str, list[str]]) -> dict[str, Any]:
    if missing := [name for name in ("from", "smarthost") if name not in query]:
        raise ValueError(f"fallback mailto:{to} lacks {' and '.join(missing)}")
    made: dict[str, Any] = {
        "to": to,
        "from": query["from"][0],
        "smarthost": query["smarthost"][0],
        "send_resolved": True,
        "headers": {"Subject": '{{ template "triton.title" . }}'},
        "html": "",
        "text": '{{ template "triton.text" . }}',
    }
    if "username" in query and "password_file" in query:
        made |= {"auth_username": query["username"][0], "auth_password_file": query["password_file"][0]}
    return made


def ticket_hours(text: str) -> dict[str, Any]:
    """Return the time interval in which tickets are sent. Raises ValueError on text in another form."""
    found = _HOURS.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"ticket hours {text!r} are not in the form {_EXAMPLE!r}")
    weekdays = [day.strip() for day in found["days"].split(",")]
    for span in weekdays:
        places = [_DAYS.index(day) if day in _DAYS else -1 for day in span.split(":")]
        if -1 in places or len(places) > 2 or places != sorted(places):
            raise ValueError(
                f"ticket hours {text!r}: {span!r} is not a day from sunday to saturday, nor a range of them in "
                "this order, such as monday:friday; separate several by commas"
            )
    if not (
        _TIME.fullmatch(found["start"]) and _TIME.fullmatch(found["end"]) and found["start"] < found["end"]
    ):
        raise ValueError(f"ticket hours {text!r}: write two times from 00:00 to 24:00, the earlier one first")
    if found["place"]:
        zone.known(found["place"])
    interval: dict[str, Any] = {
        "weekdays": weekdays,
        "times": [{"start_time": found["start"], "end_time": found["end"]}],
    }
    if found["place"]:
        interval["location"] = found["place"]
    return {"name": "ticket-hours", "time_intervals": [interval]}
