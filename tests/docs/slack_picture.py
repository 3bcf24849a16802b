"""Draw a Block Kit message as HTML much as Slack does, for the pictures of the documentation.

python -m docs.slack_picture OUT-FOLDER (from tests/) draws the pictures of docs/on-call.md with Chromium, and that
of README, with the model's dashboard of docs/pictures beside a message.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from PIL import Image, ImageChops

from support.browser import find_chromium
from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.messages import Message, Style
from triton_alerts.bridge.incidents.incident import (
    GPU,
    LAST_CHANGE,
    OBJECTIVE,
    SERVERS,
    SPLIT,
    Event,
    Evidence,
    Incident,
    Mark,
)
from triton_alerts.bridge.incidents.notification import Member
from triton_slo.indicators import Latency

NOW = 1_795_230_600.0
RULES = Path(__file__).parents[2] / "alerts" / "generated" / "rules"

_STYLE = """
body { margin: 0; background: #fff; font: 15px/1.46 Lato, "Noto Sans", "DejaVu Sans", sans-serif; color: #1d1c1d; }
.m { display: flex; gap: 8px; padding: 12px 20px; width: 680px; }
.a { width: 36px; height: 36px; border-radius: 6px; background: #76b900; color: #fff; text-align: center;
     font: 700 18px/36px sans-serif; flex: none; }
.w { flex: 1; min-width: 0; } .n { font-weight: 900; } .t { color: #616061; font-size: 12px; }
.app { background: #e8e8e8; color: #616061; font-size: 10px; padding: 1px 3px; border-radius: 2px; }
h1 { font-size: 18px; margin: 8px 0; line-height: 1.3; } .s { margin: 8px 0; white-space: pre-wrap; }
.f { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 16px; margin: 8px 0; }
.f div { white-space: pre-wrap; overflow-wrap: anywhere; }
.c { color: #616061; font-size: 13px; margin: 8px 0; } code { background: #f6f6f6; border: 1px solid #ddd;
     border-radius: 3px; color: #c01343; font-size: 12px; padding: 1px 3px; }
pre { background: #f6f6f6; border: 1px solid #ddd; border-radius: 4px; padding: 8px; margin: 4px 0; font-size: 12px;
      white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.5; }
.b { display: inline-block; border: 1px solid #bbb; border-radius: 4px; padding: 3px 10px; margin: 4px 8px 4px 0;
     font-weight: 700; font-size: 13px; } .p { background: #007a5a; border-color: #007a5a; color: #fff; }
.r { border-left: 2px solid #ddd; margin: 0 20px 4px 64px; padding: 0 12px; } a, .u { color: #1264a3; }
.u { background: #e8f5fa; } .e { color: #616061; font-size: 12px; }
"""


_EMOJI = {
    dot: '<svg width="16" height="16" style="vertical-align:-2px">'
    f'<circle cx="8" cy="8" r="7" fill="{fill}"/></svg>'
    for dot, fill in (("🔴", "#d92b2b"), ("🟠", "#f08c1a"), ("🔵", "#2b6cd9"), ("🟢", "#2aa84a"))
} | {"👀": "", "🔕": ""}
"""Machines that draw have no emoji font; Slack has."""


def page(root: Message, replies: tuple[Message, ...], at: float, *, edited: bool = False) -> str:
    """One message and its thread, as an HTML page."""
    thread = "".join(f'<div class="r">{_blocks(reply)}</div>' for reply in replies)
    mark = ' <span class="e">(edited)</span>' if edited else ""
    return (
        f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>"
        f"<div class=m><div class=a>T</div><div class=w><span class=n>tritonwatch</span> "
        f"<span class=app>APP</span> "
        f"<span class=t>{datetime.fromtimestamp(at, UTC):%H:%M}</span>{_blocks(root)}{mark}</div></div>{thread}"
    )


def _blocks(made: Message) -> str:
    shown = "".join(_block(block) for block in made.blocks) or f"<div class=s>{_mrkdwn(made.text)}</div>"
    for emoji, drawn in _EMOJI.items():
        shown = shown.replace(emoji, drawn)
    return shown


def _block(block: dict[str, Any]) -> str:
    kind = block["type"]
    if kind == "header":
        return f"<h1>{html.escape(block['text']['text'])}</h1>"
    if kind == "context":
        return f"<div class=c>{' '.join(_mrkdwn(element['text']) for element in block['elements'])}</div>"
    if kind == "actions":
        return f"<div>{''.join(_element(element) for element in block['elements'])}</div>"
    fields = "".join(f"<div>{_mrkdwn(cell['text'])}</div>" for cell in block.get("fields", ()))
    text = f"<div class=s>{_mrkdwn(block['text']['text'])}</div>" if "text" in block else ""
    return text + (f"<div class=f>{fields}</div>" if fields else "")


def _element(element: dict[str, Any]) -> str:
    if element["type"] == "static_select":
        return f"<span class=b>{html.escape(element['placeholder']['text'])} ▾</span>"
    primary = " p" if element.get("style") == "primary" else ""
    return f"<span class='b{primary}'>{html.escape(element['text']['text'])}</span>"


def _mrkdwn(text: str) -> str:
    text = re.sub(r"<!date\^(\d+)\^([^|>]*)\|[^>]*>", lambda m: _day(int(m[1]), m[2]), text)
    text = re.sub(r"<(https?://[^|>]+)\|([^>]*)>", r'<a href="\1">\2</a>', text)
    text = re.sub(r"<@[A-Z0-9]+>", "<span class=u>@ana</span>", text)
    text = re.sub(r"```\n?(.*?)\n?```\n?", r"<pre>\1</pre>", text, flags=re.S)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"(?<!\w)\*([^*\n]+)\*", r"<b>\1</b>", text)


def _day(at: int, form: str) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%b %-d, %H:%M}" if "date" in form else f"{moment:%H:%M}"


def pages() -> dict[str, str]:
    """Name of a picture -> its page."""
    load, burn = _load_failure(), _burn()
    assert load.evidence is not None
    style = Style(buttons=True, grafana="http://grafana:3000")
    down = Member(
        labels={"alertname": "TritonModelDownEverywhere", "model": "ranker", "severity": "critical"},
        annotations={"summary": "No server serves model ranker"},
        starts_at=NOW + 120,
    )
    page_now = load.model_copy(update={"members": {**load.members, "b": down}})
    ready = (SERVERS, "ready on all 2: triton-0:8000, triton-1:8000")
    recovered = page_now.model_copy(
        update={
            "members": {
                fingerprint: member.model_copy(update={"ends_at": NOW + 660})
                for fingerprint, member in page_now.members.items()
            },
            "acknowledged": Mark(by="U0ANA", at=NOW + 180),
            "closed_at": NOW + 660,
            "evidence": Evidence(at=NOW + 661, reasons=load.evidence.reasons, facts=(ready,)),
        }
    )
    raised = Event(
        at=NOW + 120,
        kind="raised",
        severity="critical",
        count=1,
        alerts=("TritonModelDownEverywhere",),
        summaries=("No server serves model ranker",),
    )
    resolved = (
        messages.reply(page_now, (raised,), mention="<@U0ONCALL>"),
        messages.reply(page_now, (Event(at=NOW + 180, kind="acknowledged", by="U0ANA"),)),
        messages.reply(recovered, (Event(at=NOW + 660, kind="closed"),), others=0),
    )
    return {
        "slack-load-failure": page(messages.root(load, style, NOW + 5), (), NOW + 5),
        "slack-burn": page(messages.root(burn, style, NOW + 5), (), NOW + 5),
        "slack-resolved": page(messages.root(recovered, style, NOW + 660), resolved, NOW + 5, edited=True),
    }


def _member(file: str, value: str, since: float, numbers: str, labels: Mapping[str, str]) -> Member:
    """Return a firing alert in the words of the generated rules; `numbers` is what their summary queries."""
    family = "slo" if "slo" in labels else "triton"
    groups = yaml.safe_load((RULES / f"{family}-{file}.yml").read_text())
    rule = next(
        rule
        for group in groups["groups"]
        for rule in group["rules"]
        if rule.get("alert") == labels["alertname"] and rule["labels"].get("tier") == labels.get("tier")
    )
    texts = {name: _filled(text, value, labels, numbers) for name, text in rule["annotations"].items()}
    return Member(
        labels={**rule["labels"], **labels},
        annotations=texts,
        starts_at=since,
        generator_url="http://prometheus:9090/graph?g0.expr=up",
    )


def _filled(template: str, value: str, labels: Mapping[str, str], numbers: str) -> str:
    """Expand the few forms of template that these alerts use, as Prometheus does."""
    version = f" version {labels['version']}" if "version" in labels else ""
    text = template.replace("{{ with $labels.version }} version {{ . }}{{ end }}", version)
    text = re.sub(r"\{\{ range .*\.Value \}\}\{\{ end \}\}", lambda _: numbers, text)
    text = re.sub(r"\{\{ \$labels\.(\w+)(?: \| urlquery)? \}\}", lambda m: labels[m[1]], text)
    return re.sub(r"\{\{ \$value[^{}]*\}\}", lambda _: value, text)


def _load_failure() -> Incident:
    labels = {"alertname": "TritonModelLoadFailed", "model": "ranker", "instance": "triton-0:8000"}
    member = _member("lifecycle", "1", NOW - 40, "", labels)
    reason = (
        "Internal: FileNotFoundError: [Errno 2] No such file or directory: '/models/ranker/3/weights.pt'\n\n"
        "At:\n  /models/ranker/3/model.py(31): initialize"
    )
    changes = "version 2 unloaded at 03:07 UTC"
    gpus = (
        "H200 GPU-5a1e3f2c: utilization 0 %, 12.4 of 139.8 GiB used, 38 °C, "
        "not throttled, no XID error in the last hour"
    )
    facts = ((LAST_CHANGE, changes), (GPU, gpus))
    return _incident(
        member, Evidence(at=NOW, reasons={"ranker v3": reason}, facts=facts, cause="missing_file")
    )


def _burn() -> Incident:
    labels = {"alertname": "TritonLatencyBudgetBurn", "model": "ranker", "version": "2"}
    more = {"slo": "latency", "indicator": "latency", "tier": "page_fast"}
    member = _member("latency", "22.4%", NOW - 90, "2912 of 13000", labels | more)
    gpus = (
        "H200 GPU-5a1e3f2c: utilization 97 %, 121.0 of 139.8 GiB used, 83 °C, "
        "clocks throttled (reason: sw_power_cap), no XID error in the last hour"
    )
    facts = (
        (OBJECTIVE, "99 % of requests within 1 s over 30d"),
        ("Burn rate", "22x the allowed rate since 03:08 UTC"),
        ("Budget left", "61.0%; lasts 19h 36m at this burn rate"),
        (SPLIT, "queue 81%, executing the model 17%, preparing inputs 1%"),
        (SERVERS, "ready on all 2: triton-0:8000, triton-1:8000"),
        (LAST_CHANGE, "version 2 loaded at 01:10 UTC"),
        (GPU, gpus),
    )
    title = "ranker: 22 % of requests take over 1 s (2,912 of 13,000 since 03:08 UTC), target 1 %"
    evidence = Evidence(at=NOW, facts=facts, first_step=Latency.step_for("queue"), title=title)
    return _incident(member, evidence).model_copy(update={"recurrence": 1})


def _incident(member: Member, evidence: Evidence) -> Incident:
    return Incident(
        name="5f0c21aa",
        key="k",
        receiver="page",
        group_labels={"alertname": member.labels["alertname"], "model": "ranker"},
        external_url="http://alertmanager:9093",
        opened_at=NOW,
        members={"a": member},
        evidence=evidence,
    )


def draw(folder: Path) -> list[Path]:
    """Write the pictures; needs Chromium on PATH."""
    chromium = find_chromium()
    assert chromium is not None, "no Chromium on PATH"
    drawn = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in pages().items():
            source = Path(scratch) / f"{name}.html"
            source.write_text(content, encoding="utf-8")
            target = (folder / f"{name}.png").absolute()
            command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
            command += [
                f"--user-data-dir={scratch}/profile",
                "--window-size=720,1200",
                f"--screenshot={target}",
            ]
            subprocess.run([*command, source.as_uri()], check=True, capture_output=True, timeout=60)
            _trim(target)
            drawn.append(target)
    return drawn


def _trim(path: Path) -> None:
    """Cut the empty paper below."""
    with Image.open(path) as picture:
        inverted = ImageChops.invert(picture.convert("RGB"))
        bottom = (inverted.getbbox() or (0, 0, 0, picture.height))[3]
        trimmed = picture.crop((0, 0, picture.width, min(picture.height, bottom + 16)))
    trimmed.save(path, optimize=True)


DASHBOARD = Path(__file__).parents[2] / "docs" / "pictures" / "dashboard-model.png"
_ROWS = 1028
"""Pixels of the dashboard's picture that README shows: the first three rows of panels."""


def beside_dashboard(slack: Path) -> Path:
    """Write the picture of README: a message as Slack shows it, and what the dashboard shows."""
    with Image.open(slack) as message, Image.open(DASHBOARD) as drawn:
        upper = drawn.convert("RGB").crop((0, 0, drawn.width, _ROWS))
        height = message.height
        board = upper.resize((round(upper.width * height / _ROWS), height), Image.Resampling.LANCZOS)
        gap = 16
        whole = Image.new("RGB", (message.width + board.width + 3 * gap, height + 2 * gap), "#d8dade")
        whole.paste(message.convert("RGB"), (gap, gap))
        whole.paste(board, (message.width + 2 * gap, gap))
    target = slack.with_name("message-and-dashboard.png")
    whole.save(target, optimize=True)
    return target


if __name__ == "__main__":
    pictures = draw(Path(sys.argv[1]))
    print(*pictures, beside_dashboard(pictures[0]), sep="\n")
