"""Test queries to a real Prometheus: login, TLS, and the messages when it is down or another server."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporters.captures import bodies
from support import history
from support.history import END
from support.loopback import Handler, answering
from triton_exporter.common.problem import ProblemsError
from triton_slo.prometheus import Prometheus, PrometheusError
from triton_slo.server_access import Access
from tritonwatch import access as arguments
from tritonwatch.parser import Parser, declare
from tritonwatch.project import PrometheusAccess

EMPTY = {"status": "success", "data": {"resultType": "vector", "result": []}}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    text = history.openmetrics(
        [
            ("events_total", {"model": name}, history.counter(END - 7200, END, 15, 2))
            for name in ("a", 'b"\n{é')
        ]
    )
    with history.serve(text, tmp_path_factory.mktemp("prometheus")) as url:
        yield url


def fault(access: Access, query: str = "up") -> str:
    """Return the message of a failed query."""
    with Prometheus(access) as client, pytest.raises(PrometheusError) as caught:
        client.instant(query)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.real
def test_instant_and_range_answers_are_those_of_a_real_prometheus(prometheus: str) -> None:
    """Values, times and hostile label values arrive as Prometheus has them."""
    with Prometheus(Access(f"{prometheus}/")) as client:
        rates = {s.labels["model"]: s.value for s in client.instant("rate(events_total[5m])", END)}
        [series] = client.range('events_total{model="a"}', END - 60, END, 15)

        assert rates == {"a": 2.0, 'b"\n{é': 2.0}
        assert tuple(END - 60.0 + 15 * i for i in range(5)) == series.times
        assert tuple((7200 - 60.0 + 15 * i) * 2 for i in range(5)) == series.values
        assert tuple(s.value for s in client.instant("42", END)) == (42.0,)
        assert client.instant("no_such_series", END) == ()


@pytest.mark.real
@pytest.mark.parametrize("timeout", ["1.5", "1500ms", "0.75s", "90.5s", "10s"])
def test_a_timeout_of_any_length_is_one_that_prometheus_reads(prometheus: str, timeout: str) -> None:
    """Prometheus reads no fractions of a unit, such as 1.5s, and refuses the query for them."""
    parser = Parser()
    declare(parser, PrometheusAccess)
    access = arguments.from_arguments(
        parser.parse_args([f"--prometheus={prometheus}", f"--timeout={timeout}"]), {}
    )

    with Prometheus(access) as client:
        assert 42.0 == client.instant("42")[0].value


@pytest.mark.real
def test_a_refused_query_quotes_the_error_of_prometheus(prometheus: str) -> None:
    """The message quotes a query that Prometheus cannot read, and a new enough Prometheus is not called old."""
    printed = fault(Access(prometheus), "rate(")

    assert printed.startswith(f"Prometheus at {prometheus} refuses the query")
    assert "parse error" in printed


def test_an_absent_prometheus_is_one_line() -> None:
    """Refused connections and unknown names are reported apart."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"

    assert f"Prometheus at {url} is not reachable: Connection refused" == fault(Access(url))
    assert "is not reachable: Name or service not known" in fault(Access("http://prometheus.invalid"))


def test_a_slow_prometheus_is_given_up() -> None:
    """A server that accepts the connection and sends nothing is called slow after the timeout."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"

        assert "is too slow: no answer within 0.2 s" in fault(Access(url, timeout_seconds=0.2))


REFUSAL = {"status": "error", "errorType": "bad_data", "error": "unknown function with name x"}
TIMEOUT = {"status": "error", "errorType": "timeout", "error": "query timed out in expression"}


@pytest.mark.parametrize(
    ("answer", "printed"),
    [
        ((REFUSAL, 400), "is too old: 2.20, needed 2.42 or newer (its answer: unknown function"),
        ((TIMEOUT, 503), "is too slow: query timed out"),
        (("no", 401), "refuses our credentials (HTTP 401)"),
        (("404 page not found", 404), "has no Prometheus API (HTTP 404)"),
        (("", 302, {"Location": "http://127.0.0.1:1/"}), "redirects elsewhere"),
        (("boom", 500), "answers HTTP 500"),
        (("<html>please log in</html>",), "does not answer as Prometheus does"),
        (("[]",), "does not answer as Prometheus does"),
        (({"data": {"result": [{"metric": {}}]}},), "does not answer as Prometheus does"),
        (({"data": {"result": [7]}},), "does not answer as Prometheus does"),
    ],
)
def test_each_unexpected_response_is_named(answer: tuple[Any, ...], printed: str) -> None:
    """Old, slow, closed, moved, broken and foreign servers each get their own words."""

    def old(request: Handler) -> None:
        build = {"data": {"version": "2.20.1", "revision": "983ebb4a5133"}}
        request.reply(*((build,) if "buildinfo" in request.path else answer))

    with answering(old) as url:
        assert printed in fault(Access(url))


def test_a_refusal_by_a_server_that_hides_its_version_is_not_called_old() -> None:
    """Thanos and others need not report a version: then the refusal is reported as it is."""
    with answering(lambda request: request.reply(REFUSAL, 400)) as url:
        assert "refuses the query: unknown function" in fault(Access(url))


@pytest.mark.parametrize(("_server", "build"), bodies("sources", "*.buildinfo.json"))
def test_the_version_of_another_server_is_not_that_of_a_prometheus(_server: str, build: bytes) -> None:
    """What real servers reported: Thanos 0.41, Mimir 3.0 and VictoriaMetrics, which reports 2.24, are not old."""

    def refusing(request: Handler) -> None:
        request.reply(*((build,) if "buildinfo" in request.path else (REFUSAL, 422)))

    with answering(refusing) as url:
        assert "refuses the query: unknown function" in fault(Access(url))


[(_, THANOS)] = bodies("sources", "thanos-*.partial.json")
MANY = [f"no store {number} {'x' * 200}" for number in range(200)]


@pytest.mark.parametrize(
    ("answer", "warnings"),
    [
        (EMPTY, []),
        (
            {**EMPTY, "warnings": ["no store matches\nzone b", "no store matches\nzone b"]},
            ["no store matches zone b"],
        ),
        # A vmselect marks a part before its data; a whole answer has the mark, too.
        ({"isPartial": True, **EMPTY}, ["the answer is partial (isPartial)"]),
        ({"isPartial": False, **EMPTY}, []),
        # Longer than the end of an answer: of a Thanos without most of its stores.
        ({**EMPTY, "warnings": MANY}, MANY),
        # That Triton's counters have unusual names is none.
        (THANOS.decode(), ['fetch series for {cluster="eu", replica="b"} Addr: 127.0.0.1:19191']),
    ],
    ids=["none", "twice", "part", "whole", "many", "thanos"],
)
def test_warnings_of_answers_are_returned_once(
    answer: str | Mapping[str, object], warnings: list[str]
) -> None:
    """An answer of a part of the servers is one."""
    with answering(answer) as url, Prometheus(Access(url)) as client:
        assert client.instant("up") == client.instant("down")
        assert len(warnings) == len(client.warnings)
        assert all(words in warning for words, warning in zip(warnings, client.warnings, strict=True))


@pytest.mark.real
@pytest.mark.parametrize("numerator", [1, -1, 0], ids=["+Inf", "-Inf", "NaN"])
def test_a_value_that_is_not_finite_is_left_out_with_a_warning(prometheus: str, numerator: int) -> None:
    """Of a vector and of a range; the finite values beside it are there."""
    divided = f"vector({numerator}) / (time() - {END})"
    both = f"{divided}\nor label_replace(vector(2), 'a', 'b', '', '')"
    warning = "values that are not finite numbers are left out: "

    with Prometheus(Access(prometheus)) as client:
        assert [2] == [sample.value for sample in client.instant(both, END)]
        [series] = client.range(divided, END - 60, END + 60, 60)
        assert [END - 60, END + 60] == list(series.times)
        assert not client.range(divided, END, END, 60)
        assert [warning + " ".join(both.split()), warning + divided] == client.warnings


def test_infos_are_not_warnings_and_none_is_about_the_names_of_triton() -> None:
    """Triton's counters do not end in _total, and a newer Prometheus remarks on it in every rate of them."""
    name = "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "
    infos = [f'{name}"nv_inference_request_success" (3:24)', "PromQL info: ignored histograms"]

    with answering({**EMPTY, "infos": infos}) as url, Prometheus(Access(url)) as client:
        with client.collecting() as remarks:
            assert () == client.instant("up")
        assert ([], ["PromQL info: ignored histograms"]) == (remarks.warnings, remarks.infos)
        assert [] == client.warnings


def test_what_a_part_of_a_question_collects_belongs_to_the_whole() -> None:
    """A report collects the warnings of its queries, and so does the page that shows it."""
    partial = {**EMPTY, "warnings": ["no store"]}

    with answering(partial) as url, Prometheus(Access(url)) as client, client.collecting() as outer:
        with client.collecting() as inner:
            assert () == client.instant("up")
        assert ["no store"] == outer.warnings == inner.warnings
        assert [] == client.warnings


def test_token_and_headers_are_sent_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bearer token wins over netrc, a header's value may be in a file, and no message repeats either."""
    (tmp_path / "token").write_text("s3cret-token\n")
    (tmp_path / "tenant").write_text("s3cret-tenant\n")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login eve password eve\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    seen: list[Mapping[str, str]] = []

    def note(request: Handler) -> None:
        seen.append(dict(request.headers))
        request.reply("no", 403)

    with answering(note) as url:
        access = parsed(
            url, "--token-file", tmp_path / "token", "--header", f"X-Scope-OrgID: @{tmp_path / 'tenant'}"
        )
        printed = fault(access) + repr(access)

    assert [headers["Authorization"] for headers in seen] == ["Bearer s3cret-token"]
    assert [headers["X-Scope-OrgID"] for headers in seen] == ["s3cret-tenant"]
    assert "s3cret" not in printed


def test_the_environment_may_contain_secrets_too() -> None:
    """Token and password are read from their variables."""
    token = parsed("http://p", environment={arguments.TOKEN_VARIABLE: "t0ken"})
    basic = parsed("http://p", "--user", "me", environment={arguments.PASSWORD_VARIABLE: "pass"})

    assert (token.bearer, token.user) == ("t0ken", "")
    assert (basic.user, basic.password) == ("me", "pass")


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--prometheus", "ftp://prometheus"], "--prometheus: 'ftp://prometheus' is not a URL"),
        (["--prometheus", "http://me:pw@host"], "a URL takes no user and password"),
        (["--prometheus", "http://host:99999"], "is not a URL"),
        (["--prometheus", "http://host/?a=b"], "has a ? or a #"),
        (["--prometheus", "http://host", "--header", "nonsense"], "write 'NAME: VALUE'"),
        (["--prometheus", "http://host", "--header", "A: @/no/such"], "/no/such: No such file"),
        (["--prometheus", "http://host", "--ca-file", "/no/such"], "/no/such: the file does not exist"),
        (["--prometheus", "http://host", "--token-file", "/dev/null"], "the file is empty"),
    ],
)
def test_unusable_arguments_are_refused_with_a_reason(words: list[str], printed: str) -> None:
    """A mistake in the arguments is reported before anything is asked."""
    parser = Parser()
    declare(parser, PrometheusAccess)

    with pytest.raises(ProblemsError, match=r"^[^\n]+$") as caught:
        arguments.from_arguments(parser.parse_args(words), {})

    assert printed in str(caught.value)


@pytest.mark.real
def test_tls_with_our_certificate_and_a_password(tmp_path: Path) -> None:
    """A Prometheus that wants TLS, a client certificate and a password gets them; else a message names which."""
    ca, ours = certificates(tmp_path)
    config = (
        f"tls_server_config: {{cert_file: {ours}, key_file: {ours}, client_ca_file: {ca}, "
        "client_auth_type: RequireAndVerifyClientCert}\n"
        # bcrypt of "correct horse"
        "basic_auth_users: {me: $2b$04$P6/KNp8W.FxCDvKCRduD1u6vhuRFj8ZsKY.aWrLY2mdFUr60qhCN6}\n"
    )
    (tmp_path / "password").write_text("correct horse\n")
    (tmp_path / "web.yml").write_text(config)
    flags = [f"--web.config.file={tmp_path / 'web.yml'}"]
    probe = {"verify": str(ca), "cert": str(ours), "auth": ("me", "correct horse")}
    with history.running(tmp_path / "p", flags=flags, probe=probe) as url:
        trusted = ("--ca-file", ca, "--cert-file", ours)
        full = parsed(url, *trusted, "--user", "me", "--password-file", tmp_path / "password")
        with Prometheus(full) as client:
            assert tuple(sample.value for sample in client.instant("1")) == (1.0,)
        assert "fails TLS: certificate verify failed" in fault(parsed(url))
        assert "refuses our credentials (HTTP 401)" in fault(parsed(url, *trusted))


def parsed(url: str, *words: object, environment: Mapping[str, str] | None = None) -> Access:
    parser = Parser()
    declare(parser, PrometheusAccess)
    args = parser.parse_args(["--prometheus", url, *map(str, words)])
    return arguments.from_arguments(args, environment or {})


def certificates(directory: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1, and a file of it with its key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not here")
    ca, key, both = directory / "ca.pem", directory / "key.pem", directory / "both.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(ca)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    both.write_text(ca.read_text() + key.read_text())
    return ca, both
