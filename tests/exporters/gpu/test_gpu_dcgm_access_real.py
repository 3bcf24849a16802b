"""Test a dcgm-exporter behind TLS and a password.

dcgm-exporter serves with exporter-toolkit, as Prometheus does: a real Prometheus that has scraped a dcgm-exporter
serves its rows behind a private CA, a client certificate and a password.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
import requests
import yaml

from exporters.dcgm import Card, serving, write
from support.history import serve
from support.tls import authority
from support.waiting import eventually
from triton_exporter.app.features import gpu_parts
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import gpu
from triton_exporter.common.problem import ProblemsError
from triton_exporter.gpu.dcgm import DcgmSource
from triton_exporter.gpu.gpu_reading import Entity, Slot, SourceError

CARD = Card()
_ROWS = '/federate?match[]={__name__=~"DCGM_.*"}'
_PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    authority(folder)
    secret = base64.b64encode(f"scraper:{_PASSWORD}".encode()).decode()
    (folder / "headers").write_text(f"Authorization: Basic {secret}\n")
    return folder


@pytest.fixture(scope="module")
def guarded(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of the rows of one GPU, behind everything that exporter-toolkit can demand."""
    directory = tmp_path_factory.mktemp("guarded")
    web = {
        "tls_server_config": {
            "cert_file": str(pki / "server.pem"),
            "key_file": str(pki / "server.key"),
            "client_ca_file": str(pki / "ca.pem"),
            "client_auth_type": "RequireAndVerifyClientCert",
        },
        "basic_auth_users": {"scraper": bcrypt.hashpw(_PASSWORD.encode(), bcrypt.gensalt(4)).decode()},
    }
    (directory / "web.yml").write_text(yaml.safe_dump(web))
    access = {
        "verify": str(pki / "ca.pem"),
        "cert": (str(pki / "client.pem"), str(pki / "client.key")),
        "auth": ("scraper", _PASSWORD),
    }
    flags = [f"--web.config.file={directory / 'web.yml'}"]
    with (
        serving(write("4.x", [CARD])) as stub,
        serve("", directory, scrape=stub.url.removeprefix("http://"), flags=flags, probe=access) as url,
    ):
        eventually(
            lambda: CARD.uuid in requests.get(f"{url}{_ROWS}", timeout=5, **access).text, "was not scraped"
        )
        yield url


def given(pki: Path, url: str, *names: str) -> DcgmSource:
    """Return the source that these options choose."""
    files = {
        "dcgm_headers_file": "headers",
        "dcgm_ca_file": "ca.pem",
        "dcgm_cert_file": "client.pem",
        "dcgm_key_file": "client.key",
    }
    options = {name: str(pki / files[name]) for name in names}
    chosen = Settings.read({"triton": "127.0.0.1:1", "gpu": "dcgm", "dcgm_url": url, **options}, {})
    (part,) = gpu_parts(chosen)
    (source,) = part._choice.sources
    assert isinstance(source, DcgmSource)
    source._path = _ROWS
    return source


@pytest.mark.real
def test_a_dcgm_exporter_behind_tls_and_a_password_is_read(pki: Path, guarded: str) -> None:
    """With all four files the rows of the GPU arrive."""
    source = given(pki, guarded, "dcgm_headers_file", "dcgm_ca_file", "dcgm_cert_file", "dcgm_key_file")
    reading = source.read(0.0)

    assert 250.5 == reading.values[Slot(gpu.POWER, Entity(CARD.uuid))]


@pytest.mark.real
@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("dcgm_headers_file",), "tls: .*certificate verify failed"),
        (("dcgm_headers_file", "dcgm_ca_file"), "tls: .*(bad certificate|certificate required)"),
        (("dcgm_ca_file", "dcgm_cert_file", "dcgm_key_file"), "HTTP 401: .*--dcgm-headers-file"),
    ],
)
def test_what_is_missing_is_in_the_reason(
    pki: Path, guarded: str, names: tuple[str, ...], reason: str
) -> None:
    """The reason names the CA, the certificate or the option for the password."""
    with pytest.raises(SourceError, match=reason):
        given(pki, guarded, *names).read(0.0)


def test_files_that_would_not_be_used_are_refused(pki: Path) -> None:
    """A CA needs an https URL, and a key a certificate; both are mistakes of their own option."""
    wrong = {"dcgm_ca_file": str(pki / "ca.pem"), "dcgm_key_file": str(pki / "client.key")}
    with pytest.raises(ProblemsError) as caught:
        Settings.read({"triton": "127.0.0.1:1", **wrong}, {})

    assert "--dcgm-key-file: is a key without a certificate (fix: name it: --dcgm-cert-file)" in str(
        caught.value
    )
    assert "would not be used: no URL is https (fix: --dcgm-url https://HOST:PORT)" in str(caught.value)
    assert {"A": "b"} == Settings.read({"triton": "127.0.0.1:1"}, {"DCGM_HEADERS": "A: b"}).dcgm_headers_file
