"""Test that Triton's reasons reach on-call from the exporter's /state, in every state of the model."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import bcrypt
import pytest

from support.bridge import body_of
from support.loopback import free_ports, served
from triton_alerts.bridge.assembly import evidence_sources
from triton_alerts.bridge.deliver.messages import Style, root
from triton_alerts.bridge.evidence import causes
from triton_alerts.bridge.evidence.facts import Enricher, reasons_in
from triton_alerts.bridge.incidents.incident import Evidence, Fault, Incident, SourceFacts, key_of
from triton_alerts.bridge.incidents.notification import Member, parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.settings import STACK_USER, BridgeSettings
from triton_exporter.common.moments import rfc3339
from triton_exporter.common.problem import ProblemsError
from triton_exporter.http.server import Request, Response, Server, routed
from triton_exporter.http.web_config import load_web_config
from triton_slo.bridge_series import EVIDENCE_SOURCES
from triton_slo.prometheus import PrometheusError
from tritonwatch.parser import Parser, declare

NOW = 1_000_000.0
FAILURE = {"at": None, "version": "1", "text": "weights missing", "source": "index"}


def _entry(**values: object) -> dict[str, object]:
    return {
        "model": "broken",
        "version": "1",
        "ready": False,
        "reason": "",
        "last_load_failure": None,
    } | values


def test_the_current_reason_comes_first() -> None:
    """The reason of a model that is unavailable is the one that Triton gives now."""
    state = {"models": [_entry(reason="no such file", last_load_failure=FAILURE)]}

    assert {"broken v1": "no such file"} == reasons_in(state, {"broken"}, NOW)


def test_a_model_that_is_being_retried_keeps_its_last_reason() -> None:
    """LOADING again carries no reason of its own: the last failure's is still the cause."""
    state = {"models": [_entry(last_load_failure=FAILURE)]}

    assert {"broken v1": "weights missing"} == reasons_in(state, {"broken"}, NOW)


def test_a_ready_model_and_a_model_of_another_have_no_reason() -> None:
    """Reasons of models that are ready again, or that are not part of the incident, are left out."""
    state = {"models": [_entry(ready=True, last_load_failure=FAILURE), _entry(model="other", reason="x")]}

    assert {} == reasons_in(state, {"broken"}, NOW)


def test_the_last_error_of_a_loaded_model_is_a_reason_while_it_is_new() -> None:
    """The exception in Triton's log before the answer to a probe; none where both are from before the incident."""

    def entry(request_at: float, probe_at: float) -> dict[str, object]:
        return _entry(
            ready=True,
            last_load_failure=FAILURE,
            last_request_error={"at": rfc3339(request_at), "text": "ValueError: no weights"},
            last_probe_error={"at": rfc3339(probe_at), "text": "timeout: "},
        )

    assert {"broken v1": "ValueError: no weights"} == reasons_in(
        {"models": [entry(NOW, NOW)]}, {"broken"}, NOW
    )
    old = NOW - 200
    assert {"broken v1": "timeout: "} == reasons_in({"models": [entry(old, NOW)]}, {"broken"}, NOW)
    assert {} == reasons_in({"models": [entry(old, old)]}, {"broken"}, NOW)


@pytest.mark.parametrize(
    ("age", "of_load", "shown"),
    [(30, True, "weights missing"), (30, False, "ValueError"), (1000, True, "ValueError")],
)
def test_a_failed_reload_is_the_reason_of_a_load_that_failed(age: float, of_load: bool, shown: str) -> None:
    """Its old copy is ready, and the message said "python error" without the exception."""
    error = {"at": rfc3339(NOW), "text": "ValueError"}
    load = FAILURE | {"at": rfc3339(NOW - age)}
    entry = _entry(ready=True, last_load_failure=load, last_request_error=error)

    assert {"broken v1": shown} == reasons_in({"models": [entry]}, {"broken"}, NOW, of_load=of_load)


def test_a_server_that_does_not_answer_gives_no_reason() -> None:
    """Its words would replace those of the servers that do: the exception that the page is about."""
    gone = _entry(state="unknown", reason="Triton's API does not report it")
    error = {"at": rfc3339(NOW), "text": "KeyError: 'x'"}

    assert {} == reasons_in({"models": [gone]}, {"broken"}, NOW)
    failing = {"models": [gone | {"last_request_error": error}]}
    assert {"broken v1": "KeyError: 'x'"} == reasons_in(failing, {"broken"}, NOW)
    failed = {"models": [gone | {"last_load_failure": FAILURE}]}
    assert {"broken v1": "weights missing"} == reasons_in(failed, {"broken"}, NOW)


def test_a_load_failure_that_was_repaired_is_no_reason() -> None:
    """The model has been ready since, so that something else is why it is not: its server died."""
    for before, reasons in ((30.0, {"broken v1": "weights missing"}), (600.0, {})):
        failure = FAILURE | {"at": rfc3339(NOW - before)}
        entry = _entry(state="unknown", last_load_failure=failure, not_ready_since=rfc3339(NOW))

        assert reasons == reasons_in({"models": [entry]}, {"broken"}, NOW)


def test_of_a_model_that_was_unloaded_neither_that_word_nor_an_old_load_failure_is_the_reason() -> None:
    """It was loaded for weeks; one whose load failed and that was then unloaded keeps the reason."""
    failure = FAILURE | {"at": rfc3339(NOW - 30)}
    entry = _entry(state="unloaded", reason="unloaded", last_load_failure=failure)

    assert {} == reasons_in({"models": [entry]}, {"broken"}, NOW)
    assert {"broken v1": "weights missing"} == reasons_in({"models": [entry]}, {"broken"}, NOW, of_load=True)
    assert {} == reasons_in({"models": [entry]}, {"broken"}, NOW + 1000, of_load=True)


def test_a_state_in_another_shape_is_not_a_reason() -> None:
    """Unknown content is ignored."""
    for state in (
        None,
        [],
        {"models": [7, {"model": "broken", "last_load_failure": "text", "last_probe_error": {"at": 7}}]},
    ):
        assert {} == reasons_in(state, {"broken"}, NOW)


def test_an_exporter_behind_a_password_gives_its_reasons(tmp_path: Path) -> None:
    """The password of `--password-file` goes to exporters, as to Prometheus and Alertmanager."""
    stored = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users:\n  {STACK_USER}: {stored}\n")
    (tmp_path / "password").write_text("correct horse\n")
    body = json.dumps({"models": [_entry(reason="no such file")]}).encode()
    handler = routed({"GET /state": lambda _: Response(body)})
    with closing(Store(tmp_path / "bridge.sqlite", lambda _severity: "C0PAGES")) as store:
        store.receive(parse(body_of("broken", {"1": 100.0}, {}), "am"), 100.0)
        incident = store.incidents.get(1)
    assert incident is not None

    with served(Server("127.0.0.1", 0, handler, load_web_config(web))) as server:
        words = ["--exporter", server.url, "--password-file", str(tmp_path / "password")]
        evidence = evidence_sources(settings_of(words), time.time)["exporter"](incident)

    assert {"broken v1": "no such file"} == evidence.reasons


def test_the_error_of_a_server_is_named_and_not_lost_to_servers_that_say_nothing(tmp_path: Path) -> None:
    """Of five Tritons one raises the exception, one did minutes before, two do not answer, and one's exporter is gone."""
    (dead,) = free_ports(1)
    with ExitStack() as stack:
        store = stack.enter_context(closing(Store(tmp_path / "bridge.sqlite", lambda _severity: "C0PAGES")))
        store.receive(parse(body_of("broken", {"1": NOW}, {}), "am"), NOW)
        incident = store.incidents.get(1)
        assert incident is not None

        def exporter(triton: str, **entry: object) -> str:
            state = {"triton": {"url": f"http://{triton}"}, "models": [_entry(**entry)]}
            body = json.dumps(state).encode()
            handler = routed({"GET /state": lambda _: Response(body)})
            return stack.enter_context(served(Server("127.0.0.1", 0, handler))).url

        error = {"at": rfc3339(NOW), "text": "KeyError: 'x'"}
        gone = {"state": "unknown", "reason": "Triton's API does not report it"}
        exporters = [
            exporter("a:8000", ready=True, last_request_error=error),
            exporter("b:8000", **gone),
            exporter("c:8000", **gone, last_request_error=error),
            exporter("d:8000", ready=True, last_probe_error={"at": rfc3339(NOW - 200), "text": "timeout"}),
            f"http://127.0.0.1:{dead}",
        ]
        words = [word for url in exporters for word in ("--exporter", url)]
        facts = evidence_sources(settings_of(words), time.time)["exporter"](incident)
    incident = incident.model_copy(update={"evidence": Evidence.of(facts, NOW)})

    assert {f"broken v1 on {server}:8000": "KeyError: 'x'" for server in "ac"} == facts.reasons
    shown = "\n".join(str(block) for block in root(incident, Style(), NOW).blocks)
    assert "*Error message* for `broken v1 on a:8000`, `broken v1 on c:8000`" in shown


def settings_of(words: list[str]) -> BridgeSettings:
    parser = Parser()
    declare(parser, BridgeSettings)
    return BridgeSettings.read(vars(parser.parse_args(["--dry-run", *words])), {})


def test_the_header_of_a_tenant_goes_to_prometheus_and_to_no_exporter(tmp_path: Path) -> None:
    """Its value comes from a file; a mistake in the option has no value of it, and is reported before the start."""
    (tmp_path / "tenant").write_text("team-a\n")
    seen: dict[str, set[str | None]] = {"/state": set(), "/api/v1/query": set()}

    def noting(request: Request) -> Response:
        seen.setdefault(request.path, set()).add(request.headers.get("x-scope-orgid"))
        return Response(b"{}")

    handler = routed({f"GET {path}": noting for path in seen})
    with closing(Store(tmp_path / "bridge.sqlite", lambda _severity: "C0PAGES")) as store:
        store.receive(parse(body_of("broken", {"1": 100.0}, {}), "am"), 100.0)
        incident = store.incidents.get(1)
    assert incident is not None
    with served(Server("127.0.0.1", 0, handler)) as server:
        words = ["--exporter", server.url, "--prometheus", server.url]
        settings = settings_of([*words, "--header", f"X-Scope-OrgID: @{tmp_path / 'tenant'}"])
        sources = evidence_sources(settings, time.time)
        sources["exporter"](incident)
        with pytest.raises(PrometheusError):
            sources["servers"](incident)

    assert {"/state": {None}, "/api/v1/query": {"team-a"}} == seen
    assert set(sources) <= set(EVIDENCE_SOURCES)
    with pytest.raises(ProblemsError) as caught:
        settings_of(["--header", "s3cret"])
    [problem] = caught.value.problems
    assert "--header: is not a header (fix: write 'NAME: VALUE' or 'NAME: @FILE')" == str(problem)


def test_a_source_that_hangs_or_fails_costs_its_own_facts_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others' facts are attached while it still hangs; it is counted, and logged once a minute."""
    caplog.set_level(logging.INFO)
    release, ended, failed = threading.Event(), threading.Event(), []

    def hangs(_incident: Incident) -> SourceFacts:
        release.wait(60)
        ended.set()
        return SourceFacts(facts=(("Late", "never shown"),))

    def fails(_incident: Incident) -> SourceFacts:
        raise OSError("connection refused")

    sources = {"hangs": hangs, "fails": fails, "good": lambda _: SourceFacts(facts=(("Burn rate", "22"),))}
    with closing(Store(tmp_path / "bridge.sqlite", lambda _severity: "C0PAGES")) as store:
        store.receive(parse(body_of("g0", {"a": 100.0}, {}), "am"), 100.0)
        where = {"hangs": "http://a:9401", "fails": "http://b:9090"}
        with closing(Enricher(store, sources, failed.append, addresses=where)) as enricher:
            enricher(100.0)
            enricher.gather(Incident(name="n", key="k", receiver="r", opened_at=1.0), 159.0)
            still_hanging = not ended.is_set()
            release.set()
        incident = store.incidents.get(1)

    assert still_hanging
    assert 2 * ["hangs", "fails"] == failed
    assert {logging.WARNING} == {record.levelno for record in caplog.records}
    silent, refused = (record.getMessage() for record in caplog.records)
    assert silent.startswith("no evidence from hangs (http://a:9401) for incident ")
    assert silent.endswith(": no answer within 1.5 s")
    assert refused.startswith("no evidence from fails (http://b:9090) ")
    assert refused.endswith(": connection refused")
    assert incident is not None
    faults = {key_of(incident.lead.labels): Fault()}
    expected = Evidence(at=100.0, facts=(("Burn rate", "22"),), about=incident.led_by, faults=faults)
    assert expected == incident.evidence


def test_an_exception_of_a_request_is_no_reason_why_a_model_is_not_ready() -> None:
    """A model was unloaded after its requests had failed: the title named their exception, the step its code."""
    raised = "ValueError: store refused At: /models/m/1/model.py(19): {}"
    labels = {"alertname": "TritonModelDownEverywhere", "model": "m"}
    lead = Member(labels=labels, starts_at=0.0)
    for place, words in (("execute", ""), ("initialize", "ValueError: store refused At: ")):
        evidence = Evidence(at=0.0, reasons={"m v1": raised.format(place)})
        incident = Incident(
            name="n", key="k", receiver="r", opened_at=0.0, members={"a": lead}, evidence=evidence
        )
        assert causes.brief(incident, lead).startswith(words)
        assert bool(words) == bool(causes.brief(incident, lead))
