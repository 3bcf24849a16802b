"""Test the texts that on-call reads: within Slack's limits and escaped, for any labels and reasons."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.slack.limits import check_message
from triton_alerts.bridge import text
from triton_alerts.bridge.deliver import messages, transport
from triton_alerts.bridge.deliver.messages import Message, Style
from triton_alerts.bridge.incidents.incident import (
    GPU,
    LAST_CHANGE,
    SERVERS,
    SPLIT,
    Event,
    EventKind,
    Evidence,
    Incident,
    Mark,
    Silence,
)
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.slack_setup import sample
from triton_exporter.lifecycle.load_failures import NOT_LISTED
from triton_slo.indicators import Errors, Latency, Queue, Readiness
from triton_slo.indicators.indicator import Indicator

HOSTILE = (
    "<!channel> <!here> <@U012AB3CD> <!subteam^S012>",
    "*bold* _it_ ~no~ `code` ```block```",
    "<http://evil.example|click here> & <script>alert(1)</script>",
    "{{ .Labels.x }} {{ $value }} ${HOME} %s %(x)s {0}",
    "\u202egnp.exe \u200b\u2066 \x00\x07\x1b[31m\ud800",
    "x" * 20_000,
    "&" * 20_000,
    "<" * 20_000 + "\n" * 1000,
    "`" * 20_000,
    "\U0001f525" * 20_000,
    "漢字 🔥 é ß \U0001f468‍\U0001f469",
    "",
    "   ",
    "\n\n\n",
)
words = st.sampled_from(HOSTILE) | st.text(max_size=60)
labels = st.dictionaries(
    st.sampled_from(("alertname", "model", "version", "instance", "severity", "owner", "gpu", "x")), words
)
annotations = st.dictionaries(
    st.sampled_from(("summary", "description", "cause", "action", "runbook_url", "dashboard_url")), words
)
times = st.floats(-1e12, 1e12)


@st.composite
def incidents(draw: st.DrawFn) -> Incident:
    members = {
        str(number): Member(
            labels=draw(labels),
            annotations=draw(annotations),
            starts_at=draw(times),
            ends_at=draw(st.none() | times),
            generator_url=draw(words),
        )
        for number in range(draw(st.integers(1, 8)))
    }
    firing = any(member.firing for member in members.values())
    reasons = draw(st.dictionaries(words, words, max_size=5))
    names = st.sampled_from((LAST_CHANGE, GPU)) | words.map(lambda w: w[:40] or "-")
    facts = draw(st.lists(st.tuples(names, words), max_size=12))
    return Incident(
        name="ab12cd34",
        key="k",
        receiver="r",
        group_labels=draw(labels),
        external_url=draw(words),
        opened_at=draw(times),
        closed_at=None if firing else 5.0,
        members=members,
        acknowledged=draw(st.none() | st.builds(Mark, by=words, at=times)),
        silence=draw(
            st.none() | st.builds(Silence, id=words, by=words, until=times, until_resolved=st.booleans())
        ),
        evidence=draw(st.none() | st.just(Evidence(at=1.0, reasons=reasons, facts=tuple(facts)))),
    )


MARKUP = re.compile(r"<[^>]*>")
OURS = re.compile(r"<!date\^\d+\^[^|<>]*\|[^|<>]*>|<@[UW][A-Z0-9]*>|<https?://[^<>|]*\|[^<>|]*>")


def mrkdwn(value: object) -> list[str]:
    """Every mrkdwn text of a message."""
    if isinstance(value, dict):
        here = [value["text"]] if value.get("type") == "mrkdwn" else []
        return here + [string for inner in value.values() for string in mrkdwn(inner)]
    return [string for inner in value for string in mrkdwn(inner)] if isinstance(value, list | tuple) else []


def harmless(made: Message) -> None:
    content = json.loads(json.dumps({"text": made.text, "blocks": list(made.blocks)}).encode())
    check_message(content)
    for written in [made.text, *mrkdwn(made.blocks)]:
        assert [] == [markup for markup in MARKUP.findall(written) if not OURS.fullmatch(markup)]
        assert text.clean(written) == written


@given(incident=incidents(), buttons=st.booleans(), now=times)
def test_every_message_fits_slack_and_mentions_nobody(incident: Incident, buttons: bool, now: float) -> None:
    """Slack takes the message, and no label became a mention, a link or a control character."""
    harmless(messages.root(incident, Style(buttons=buttons, grafana="http://grafana.example"), now))
    harmless(messages.escalation(incident, "", 900, "", now))
    harmless(messages.digest([incident] * 45, 100, 90, 20))


@given(
    incident=incidents(),
    events=st.lists(
        st.builds(
            Event,
            at=times,
            kind=st.sampled_from(
                ("fired", "resolved", "passed", "closed", "acknowledged", "silenced", "note", "released")
            ),
            count=st.integers(0, 10_000),
            subjects=st.lists(words, max_size=10).map(tuple),
            alerts=st.lists(words, max_size=3).map(tuple),
            summaries=st.lists(words, max_size=3).map(tuple),
            by=words,
            severity=words,
            words=words,
        ),
        max_size=12,
    ),
)
def test_every_reply_fits_and_pings_nobody(incident: Incident, events: list[Event]) -> None:
    """The thread is as safe as the channel."""
    harmless(messages.reply(incident, events, 3))


def failed_load(**changes: object) -> Incident:
    member = Member(
        labels={"alertname": "TritonModelLoadFailed", "model": "ranker", "version": "3", "instance": "t:9401"}
        | {"severity": "critical", "owner": "search"},
        annotations={
            "summary": "Model ranker failed to load on t:9401",
            "action": "Put the file in place.",
            "runbook_url": "https://runbooks.example/TritonModelLoadFailed",
            "dashboard_url": "/d/triton-model?var-model=ranker",
        },
        starts_at=1_700_000_000.0,
        generator_url="http://prometheus:9090/graph?g0.expr=x",
    )
    base = Incident(
        name="ab12cd34",
        key="k",
        receiver="page",
        external_url="http://alertmanager:9093",
        opened_at=1_700_000_030.0,
        members={"f": member},
        evidence=Evidence(
            at=1.0, reasons={"ranker v3": "Internal: unable to find weights.pt"}, cause="missing_file"
        ),
    )
    return base.model_copy(update=changes)


def without_cause(alertname: str, cause: str, *reasons: str) -> list[str]:
    """Return the title's cause and the first step of an alert with this counted cause, and Triton's reasons."""
    opened = failed_load()
    member = opened.members["f"]
    reported = {**member.annotations, "action": "Look at it."}
    labels = {**member.labels, "alertname": alertname}
    seen = {f"ranker v{number}": reason for number, reason in enumerate(reasons)} | {"rank v1": "bad_alloc"}
    incident = opened.model_copy(
        update={
            "members": {"f": member.model_copy(update={"annotations": reported, "labels": labels})},
            "evidence": Evidence(at=1.0, reasons=seen, cause=cause),
        }
    )
    blocks = messages.root(incident, Style(), 1_700_000_600.0).blocks
    title = blocks[0]["text"]["text"].partition(f"{member.annotations['summary']}: ")[2]
    shown = [block["text"]["text"] for block in blocks[3:-2]]
    assert not any(line.startswith("*Cause*") for line in shown)  # once is enough
    return [
        *([title] if title else []),
        *(line.partition("\n")[2] for line in shown if line.startswith("*First step*")),
    ]


PUT_BACK = "Put the missing file in place, let Triton read it, or roll the model back; then load it again."
FIX_CODE = (
    "Read the traceback in Triton's error message; fix model.py or its imports, or roll the model back."
)
NO_FILE = "Internal: FileNotFoundError: No such file or directory: 'weights.pt'"


@pytest.mark.parametrize(
    ("alertname", "cause", "reasons", "shown"),
    [
        ("TritonModelLoadFailed", "", [NO_FILE], ["weights.pt is missing", PUT_BACK]),
        ("TritonReadinessBudgetBurn", "", [NO_FILE], ["weights.pt is missing", PUT_BACK]),
        (
            "TritonReadinessBudgetBurn",
            "state:unavailable 100%",
            [NO_FILE],
            ["failed to load 100%", PUT_BACK],
        ),
        ("TritonModelLoadFailed", "python_error", [NO_FILE], [NO_FILE.removeprefix("Internal: "), FIX_CODE]),
        ("TritonModelLoadFailed", "", [NO_FILE, "CUDA out of memory"], ["Look at it."]),
        ("TritonModelLoadFailed", "", ["something new"], ["Look at it."]),
        ("TritonModelLoadFailed", "", [], ["Look at it."]),
        ("TritonQueueBudgetBurn", "", [NO_FILE], ["Look at it."]),
    ],
)
def test_tritons_reason_replaces_a_cause_that_the_alert_does_not_know_yet(
    alertname: str, cause: str, reasons: list[str], shown: list[str]
) -> None:
    """At the exporter's first poll counters are at 0 and the reason is there; several reasons are not a cause."""
    assert shown == without_cause(alertname, cause, *reasons)


@pytest.mark.parametrize("kind", [Latency, Errors, Queue])
@pytest.mark.parametrize(
    ("alert", "before"),
    [("TritonLatencyBudgetBurn", ""), ("TritonSLOBudgetSpentUnnoticed", "Postpone risky changes. ")],
)
def test_without_prometheus_the_first_step_is_that_of_the_kind(
    kind: type[Indicator], alert: str, before: str
) -> None:
    """A bridge with no `--prometheus` knows no cause: the steps for causes are in the runbook."""
    member = failed_load().members["f"]
    labels = {**member.labels, "alertname": alert, "indicator": kind.name()}
    texts = {"action": before + kind.all_steps()}
    burning = failed_load(
        members={"f": member.model_copy(update={"annotations": texts, "labels": labels})}, evidence=None
    )
    shown = [block.get("text", {}).get("text") for block in messages.root(burning, Style(), 2.0).blocks]

    step = kind.first_step.replace("`", "ˋ")  # no markup in a text of the alert
    assert [f"*First step*\n{before}{step}"] == [field for field in shown if field and "First step" in field]


def test_a_model_that_triton_does_not_list_has_the_first_step_of_a_missing_one() -> None:
    """The first evaluation knows no cause yet; the exporter's reason is there."""
    member = failed_load().members["f"]
    labels = {**member.labels, "alertname": Readiness.burn_alert, "indicator": "readiness"}
    texts = {"action": Readiness.all_steps(), "description": "It burns."}
    changed = member.model_copy(update={"annotations": texts, "labels": labels})
    evidence = Evidence(at=1.0, reasons={"ranker": NOT_LISTED})
    burning = failed_load(members={"f": changed}, evidence=evidence)

    shown = json.dumps(messages.root(burning, Style(), 2.0).blocks)

    assert "*First step*\\nSearch Triton's log for the model's name" in shown
    assert Readiness.first_step not in shown


def test_what_a_model_raised_before_its_server_died_is_not_why_it_is_not_ready() -> None:
    """The exception stays in the message, below; title and first step are about the server."""
    member = failed_load().members["f"]
    labels = {**member.labels, "alertname": Readiness.burn_alert, "indicator": "readiness"}
    changed = member.model_copy(update={"annotations": {"action": Readiness.all_steps()}, "labels": labels})
    step = Readiness.steps_by_cause["state:unknown"]
    dead = "a:8000 does not answer since 18:59 UTC"
    evidence = Evidence(
        at=1.0, reasons={"ranker v1 on a:8000": "ValueError: no vector for tenant 4711"}, dead_server=dead
    )
    header, *rest = messages.root(failed_load(members={"f": changed}, evidence=evidence), Style(), 2.0).blocks

    assert f"🔴 {dead}" == header["text"]["text"]
    assert f"*First step*\n{step}" in [block.get("text", {}).get("text") for block in rest]
    assert "ValueError" in json.dumps(rest)


@pytest.mark.parametrize("own", ["", "Ask the owner."])
def test_the_first_step_of_a_burn_alert_is_that_for_its_largest_cause(own: str) -> None:
    """The alert names the steps for all causes; the bridge knows the cause, and leaves a user's own step alone."""
    burning = failed_load()
    member = burning.members["f"]
    labels = {**member.labels, "alertname": Latency.burn_alert, "indicator": "latency"}
    action = {"action": own or Latency.all_steps()}
    step = Latency.step_for("queue")
    incident = burning.model_copy(
        update={
            "members": {"f": member.model_copy(update={"annotations": action, "labels": labels})},
            "evidence": Evidence(at=1.0, first_step=step),
        }
    )
    shown = [block.get("text", {}).get("text") for block in messages.root(incident, Style(), 2.0).blocks]

    assert [f"*First step*\n{own or step}"] == [field for field in shown if field and "First step" in field]
    assert step not in str(messages.root(incident, Style(), 2.0).blocks[1])


@pytest.mark.parametrize(
    ("count", "subjects", "line"),
    [
        (1, ["ranker v3"], "TritonX for `ranker v3`"),
        (2, ["ranker v3"], "TritonX for `ranker v3` (2 alerts)"),
        (12, [f"m{number}" for number in range(10)], "`m9` (12 alerts)"),
    ],
)
def test_alerts_of_one_model_are_not_more_models(count: int, subjects: list[str], line: str) -> None:
    """Two tiers of one budget are two alerts about one model."""
    event = Event(at=1.0, kind="resolved", count=count, subjects=tuple(subjects), alerts=("TritonX",))

    assert messages.reply(failed_load(), (event,)).text.endswith(line)


def test_the_last_change_and_the_gpus_are_below_the_reason() -> None:
    """The why is whole: Triton's words, then the last change, then the GPUs, each over the full width."""
    evidence = Evidence(
        at=1.0,
        reasons={"ranker v3": "unable to find weights.pt"},
        facts=((GPU, "H200: 98 % busy"), (LAST_CHANGE, "version 3 failed to load 9m before the first alert")),
    )
    blocks = messages.root(failed_load(evidence=evidence), Style(), 1_700_000_600.0).blocks
    shown = "\n".join(
        block["text"]["text"] for block in blocks if block["type"] == "section" and "text" in block
    )
    places = [shown.find(word) for word in ("weights.pt", "version 3 failed", "98 % busy")]

    assert -1 not in places
    assert sorted(places) == places


def test_slack_makes_no_mention_or_link_of_a_name() -> None:
    """Without `verbatim` Slack parses channels, mentions and addresses in every text of a block."""

    def texts(value: object) -> list[dict[str, object]]:
        if isinstance(value, dict):
            here = [value] if value.get("type") == "mrkdwn" else []
            return here + [string for inner in value.values() for string in texts(inner)]
        return (
            [string for inner in value for string in texts(inner)] if isinstance(value, list | tuple) else []
        )

    opened, resolved, events = sample(1_700_000_000.0)
    made = [messages.root(opened, Style(), 1_700_000_000.0), messages.reply(resolved, events)]
    made += [
        messages.digest([opened], 1, 1, 0),
        messages.escalation(opened, "<!here>", 60, "", 0.0),
    ]
    text_objects = [text for each in made for text in texts(each.blocks)]

    assert len(text_objects) > 8
    assert [] == [text for text in text_objects if text.get("verbatim") is not True]


@pytest.mark.parametrize(
    ("kind", "word"),
    [("fired", "also firing"), ("resolved", "resolved")],
)
def test_a_reply_names_alert_model_and_summary(kind: EventKind, word: str) -> None:
    """Nobody should have to open the message above to know which alert a line in the thread is about."""
    summary = "Model broken failed to load on t:9401"
    event = Event(at=1000.0, kind=kind, count=1, alerts=("TritonModelLoadFailed",), summaries=(summary,))
    line = messages.reply(failed_load(), (event,)).text

    assert word in line
    assert f"{summary} (TritonModelLoadFailed)" in line


@pytest.mark.parametrize(
    ("severity", "kind", "words"),
    [
        ("warning", "fired", "also firing (ticket): "),
        ("critical", "fired", "also firing (page): "),
        ("critical", "resolved", "resolved (page): "),
        ("info", "fired", "also firing: "),
        ("", "fired", "also firing: "),
    ],
)
def test_a_line_about_an_alert_names_its_tier(severity: str, kind: EventKind, words: str) -> None:
    """A ticket and a page of one objective have the same name; older events do not know it."""
    event = Event(at=1.0, kind=kind, count=1, alerts=("TritonX",), summaries=("m burns",), severity=severity)

    assert f"{words}m burns (TritonX)" in messages.reply(failed_load(), (event,)).text


def test_words_of_the_exporter_are_not_called_triton_s() -> None:
    """A model that Triton does not list has no error from Triton: the text names the exporter as its source."""
    evidence = Evidence(at=1.0, reasons={"ranker": NOT_LISTED})
    shown = json.dumps(messages.root(failed_load(evidence=evidence), Style(), 2.0).blocks)

    assert "*Error message* for `ranker`" in shown
    assert "Triton's error" not in shown


def test_the_present_state_is_left_out_once_it_has_ended() -> None:
    """That the model is not ready was true a minute ago; the message reports that the incident has ended."""
    evidence = Evidence(at=1_700_000_600.0, facts=((SERVERS, "ready on 2 of 3"), (GPU, "97 % busy")))
    opened = failed_load().model_copy(update={"evidence": evidence})
    member = next(iter(opened.members.values())).model_copy(update={"ends_at": 1_700_000_900.0})
    over = opened.model_copy(update={"members": {"a": member}, "closed_at": 1_700_000_900.0})
    during, after = (
        json.dumps(messages.root(incident, Style(), 1_700_000_900.0).blocks) for incident in (opened, over)
    )

    assert [True, True] == [fact in during for fact in ("ready on 2 of 3", "97 % busy")]
    assert [False, False] == [fact in after for fact in ("ready on 2 of 3", "97 % busy")]
    assert [True, True] == ["since <!date" in during, "*15m*" in after]


def test_a_cause_that_the_title_cannot_hold_is_shown_beside_the_split() -> None:
    """The cause of an alert is a class of errors; what Prometheus returned is shares."""
    split = Evidence(
        at=1_700_000_600.0, facts=((SPLIT, "queue 81%, executing the model 17%"),), cause="missing_file"
    )
    member = failed_load().members["f"]
    long = member.model_copy(update={"annotations": {"summary": "Model " + 140 * "r"}})
    opened = failed_load(members={"f": long}, evidence=split)
    shown = json.dumps(messages.root(opened, Style(), 1_700_000_600.0).blocks)

    assert "*Cause*\\nmissing file" in shown
    assert "queue 81%" in shown


def test_the_message_answers_the_five_questions() -> None:
    """What, since when and how badly, why, what to do, who has it: in this order, on one screen."""
    shown = json.dumps(
        messages.root(failed_load(), Style(True, "http://grafana:3000"), 1_700_000_600.0).blocks
    )
    wanted = [
        "weights.pt is missing",
        "since <!date",
        "(10m)",
        "page",
        "*not acknowledged*",
        "*Affected*",
        "`ranker` version `3`",
    ]
    wanted += [
        "*Error message*",
        "*First step*",
        "Put the missing file",
        '"action_id": "acknowledge"',
    ]
    places = [shown.find(word) for word in wanted]

    assert -1 not in places
    assert sorted(places) == places


def test_a_field_that_slack_would_refuse_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Slack takes ten fields a section; what is left out is named."""
    facts = tuple((f"Fact {number}", "x") for number in range(11))
    shown = json.dumps(
        messages.root(failed_load(evidence=Evidence(at=1.0, facts=facts)), Style(), 2e9).blocks
    )

    assert [True, False] == ["Fact 8" in shown, "Fact 9" in shown]
    assert "Fact 9, Fact 10" in caplog.text


def test_links_lead_to_the_model_and_the_time() -> None:
    """The dashboard opens on the model, from half an hour before."""
    blocks = messages.root(failed_load(), Style(False, "http://grafana:3000"), 1_700_000_600.0).blocks
    urls = {e["text"]["text"]: e["url"] for b in blocks if b["type"] == "actions" for e in b["elements"]}

    assert (
        "http://grafana:3000/d/triton-model?var-model=ranker&from=1699998200000&to=now" == urls["Dashboard"]
    )
    assert {"Runbook", "Dashboard", "Query", "Alertmanager", "Silence"} == set(urls)


def test_an_expression_too_long_for_slack_leads_to_the_alert() -> None:
    """Slack takes 3,000 characters of an address; the button vanished without a word."""
    incident = failed_load()
    (name,) = incident.members
    long = incident.members[name].model_copy(
        update={"generator_url": f"http://prometheus:9090/prefix/graph?g0.expr={'x' * 3000}&g0.tab=1"}
    )
    (query,) = links(incident.model_copy(update={"members": {name: long}}), Style(False), "Query")
    page, _, arguments = query.partition("?")

    assert "http://prometheus:9090/prefix/graph" == page
    assert ['ALERTS{alertname="TritonModelLoadFailed", instance="t:9401", model="ranker"}'] == parse_qs(
        arguments
    )["g0.expr"]


@pytest.mark.parametrize("url", ["http://[bad", f"http://[{'x' * 3000}/graph"])
def test_an_address_that_cannot_be_parsed_costs_one_button(url: str) -> None:
    """The message is posted without that button; it names the model and the reason."""
    incident = failed_load()
    (name,) = incident.members
    wrong = incident.members[name].model_copy(update={"generator_url": url})
    incident = incident.model_copy(update={"members": {name: wrong}})

    assert [] == links(incident, Style(False), "Query")
    assert 1 == len(links(incident, Style(False), "Runbook"))


@pytest.mark.parametrize("value", ["TritonServerDown", 'a "quoted\\ name', "two\nlines"])
def test_without_buttons_a_link_leads_to_the_silence(value: str) -> None:
    """A webhook cannot be pressed: Alertmanager's form opens with the incident's matchers filled in."""
    member = failed_load().members["f"]
    member = member.model_copy(update={"labels": {**member.labels, "alertname": value}})
    incident = failed_load(members={"f": member}, group_labels={"alertname": value, "model": "ranker"})
    (silence,) = [link for style in (Style(False), Style(True)) for link in links(incident, style, "Silence")]
    page, _, query = silence.partition("?filter=")
    matchers = unquote(query)

    assert "http://alertmanager:9093/#/silences/new" == page
    of_the_alert = 'severity="critical",version="3",instance="t:9401"'
    assert f'{{alertname={json.dumps(value)},model="ranker",{of_the_alert}}}' == matchers


def test_links_to_silences_cover_every_alert_of_the_incident() -> None:
    """A ticket and its page need a silence each: one link alone would not silence the page."""
    load = failed_load().members["f"]
    page = load.model_copy(
        update={"labels": {**load.labels, "alertname": "TritonReadinessBudgetBurn", "severity": "warning"}}
    )
    incident = failed_load(members={"f": load, "p": page})

    named = [unquote(links(incident, Style(False), f"Silence {number} of 2")[0]) for number in (1, 2)]

    assert [] == links(incident, Style(False), "Silence")
    printed = transport.render(messages.root(incident, Style(False), 1_700_000_600.0), "#triton-alerts")
    assert "Silence 1 of 2: http://alertmanager:9093/#/silences/new" in printed
    for silence, member in zip(named, (load, page), strict=True):
        assert f'alertname="{member.name}"' in silence
        assert f'severity="{member.severity}"' in silence


def links(incident: Incident, style: Style, label: str) -> list[str]:
    """Return the addresses of the buttons with this label."""
    blocks = messages.root(incident, style, 1_700_000_600.0).blocks
    elements = [element for block in blocks if block["type"] == "actions" for element in block["elements"]]
    return [element["url"] for element in elements if element.get("url") and element["text"]["text"] == label]


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "http://", "ftp://x/y", "http://x/a b", "http://x/<y>", "//x", "/d/x"]
)
def test_an_address_that_is_none_gets_no_button(url: str) -> None:
    """Only http and https, without anything that would break the markup."""
    assert "" == text.safe_url(url)


def test_a_long_reason_keeps_both_ends() -> None:
    """The first line of a traceback shows where it failed, the last one why."""
    shown = text.code_block("first line\n" + "noise\n" * 20_000 + "ValueError: last line", 2600)

    assert len(shown) <= 2600
    assert "first line" in shown
    assert "ValueError: last line" in shown
    assert "[cut]" in shown


@pytest.mark.parametrize(
    ("end", "lasted"),
    [
        (1_700_000_720, "to <!date^1700000720^{time}|22:25 UTC>: *12m*"),
        (1_700_172_800, "to <!date^1700172800^{date_short_pretty} {time}|2023-11-16 22:13:20 UTC>: *2d*"),
    ],
)
def test_resolved_shows_how_long_it_took(end: int, lasted: str) -> None:
    """The end needs no arithmetic; another day than that of the start is named."""
    member = failed_load().members["f"].model_copy(update={"ends_at": float(end)})
    ended = failed_load(members={"f": member}, closed_at=end + 5.0)
    made = messages.root(ended, Style(True), end + 5.0)

    assert made.text.startswith("🟢 Resolved: Model ranker failed to load")
    assert lasted in json.dumps(made.blocks)
    assert '"action_id": "acknowledge"' not in json.dumps(made.blocks)


def test_an_incident_that_ended_before_it_was_posted_names_all_its_alerts() -> None:
    """Slack was away for all of it: its only message must name the page among the tickets."""
    names = ("TritonQueueFull", "TritonQueueBacklog", "TritonProbeFailing", "TritonLatencyBudgetBurn")
    members = {
        name: Member(labels={"alertname": name, "model": "m"}, annotations={}, starts_at=0.0, ends_at=60.0)
        for name in names
    }
    ended = sample(0.0)[0].model_copy(update={"members": members, "closed_at": 90.0})
    footer = json.dumps(messages.root(ended, Style(), 100.0).blocks[-1])

    assert not ended.open
    assert all(name in footer for name in names)
