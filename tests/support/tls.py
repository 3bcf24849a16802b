"""Make certificates for a test, and run a TLS proxy in front of a plain server."""

from __future__ import annotations

import datetime
import ipaddress
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support.loopback import served


def certificate(
    folder: Path, name: str, issuer: str | None = None, password: bytes = b"", hosts: Sequence[str] = ()
) -> None:
    """Write name.key and name.pem for localhost and other hosts, signed by the issuer's key or by its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, signed_by = key, subject
    if issuer:
        loaded = serialization.load_pem_private_key((folder / f"{issuer}.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
        signed_by = x509.load_pem_x509_certificate((folder / f"{issuer}.pem").read_bytes()).subject
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(host) for host in ("localhost", *hosts)]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    signs = issuer is None
    usage = x509.KeyUsage(True, False, False, False, False, signs, signs, False, False)
    signers_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    written = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
        .add_extension(usage, critical=True)  # this and the next two: Python 3.13 wants them
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signers_key, critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(written.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption(),
        )
    )


def authority(folder: Path) -> None:
    """Make a CA, the server and the client that it signed, and a client that nobody signed."""
    certificate(folder, "ca")
    certificate(folder, "server", "ca")
    certificate(folder, "client", "ca")
    certificate(folder, "unsigned")


@contextmanager
def tls_in_front_of(port: int, folder: Path) -> Iterator[int]:
    """Run a proxy to a port of this machine that admits clients of the folder's CA; yield its own port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    ends = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(5)
            with suppress(OSError):
                _admit(self.request, context, port, ends)

    with served(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as server:
        try:
            yield server.server_address[1]
        finally:
            ends.set()


def _admit(client: socket.socket, context: ssl.SSLContext, port: int, ends: threading.Event) -> None:
    with context.wrap_socket(client, server_side=True, do_handshake_on_connect=False) as tls:
        try:
            tls.do_handshake()
        except ssl.SSLError:
            # A close with unread input would reset the connection and lose the alert.
            tls.shutdown(socket.SHUT_WR)
            while tls.recv(65536):
                pass
            return
        with socket.create_connection(("127.0.0.1", port), 5) as upstream:
            _relay(tls, upstream, ends)


def _relay(client: socket.socket, other: socket.socket, ends: threading.Event) -> None:
    while not ends.is_set():
        for reader in select.select([client, other], [], [], 0.05)[0]:
            # As long as a TLS record is at most: none is left where select does not see it.
            data = reader.recv(65536)
            if not data:
                return
            (other if reader is client else client).sendall(data)
