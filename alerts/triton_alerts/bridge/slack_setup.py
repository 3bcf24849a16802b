"""Try a Slack set-up before the first page depends on it: token, scopes, channels, and a sample incident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triton_alerts.bridge.deliver.slack import SlackApi
from triton_alerts.bridge.deliver.transport import DeliveryError
from triton_alerts.bridge.incidents.incident import Event, Evidence, Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.settings import is_channel_id
from triton_exporter.common.problem import Problem

_APP = "in the app's OAuth & Permissions, then reinstall the app"
_CHANNEL_FIXES = {
    "not_in_channel": "invite the app: /invite @{user}",
    "channel_not_found": "check the id; invite the app where the channel is private",
    "is_archived": "name another channel",
    "missing_scope": f"add groups:history for a private channel, {_APP}",
}


def check(
    slack: SlackApi, channels: Iterable[str], needs: Mapping[str, str]
) -> tuple[list[str], list[Problem]]:
    """Return a line for each thing that works, and what is missing; `needs` is what each scope is for."""
    try:
        granted = slack.granted()
    except DeliveryError as refusal:
        fix = (
            "check the file of --slack-token-file"
            if refusal.kind == "setup"
            else "messages wait on disk until Slack answers"
        )
        return [], [Problem("Slack", f"auth.test: {refusal.detail}", fix)]
    works = [f"Slack: {granted.user} in workspace {granted.team}"]
    problems = []
    if granted.scopes:
        works.append(f"Slack: scopes {', '.join(sorted(granted.scopes))}")
        problems = [
            Problem("Slack", f"the scope {scope} is missing: {use}", f"add it {_APP}")
            for scope, use in needs.items()
            if not granted.scopes & {scope, scope.replace("channels:", "groups:")}
        ]
    for channel in sorted(channels):
        if not is_channel_id(channel):
            works.append(
                f"Slack: channel {channel}: given by name, so it is not checked before its first message"
            )
            continue
        try:
            slack.read(channel)
        except DeliveryError as refusal:
            fix = _CHANNEL_FIXES.get(refusal.detail, "see Slack's documentation of the error").format(
                user=granted.user
            )
            problems.append(Problem(f"Slack channel {channel}", refusal.detail, fix))
        else:
            works.append(f"Slack: channel {channel}: the app is a member")
    return works, problems


def sample(now: float) -> tuple[Incident, Incident, tuple[Event, ...]]:
    """Return an incident as it opened a few minutes ago, the same resolved now, and what happened between."""
    member = Member(
        labels={
            "alertname": "BridgeTest",
            "model": "sample",
            "version": "1",
            "instance": "triton-0:8000",
            "severity": "critical",
            "owner": "nobody",
        },
        annotations={
            "summary": "This is a test: model sample failed to load on triton-0",
            "description": "Nothing is broken. `tritonwatch bridge test` sent this to check that alerts arrive.",
            "action": "Nothing to do. A real alert shows its first step here.",
        },
        starts_at=now - 240,
    )
    opened = Incident(
        name="test0000",
        key="test",
        receiver="test",
        opened_at=now - 240,
        members={"test": member},
        evidence=Evidence(at=now, reasons={"sample v1": "a real alert shows Triton's error message here"}),
    )
    ended = member.model_copy(update={"ends_at": now})
    resolved = opened.model_copy(update={"members": {"test": ended}, "closed_at": now})
    return opened, resolved, (Event(at=now, kind="closed"),)
