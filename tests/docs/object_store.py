"""Serve a small S3: a folder as one bucket over HTTP, as slow as configured. It checks no signature."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from support.loopback import Handler, HttpServer, served

BUCKET = "bucket"


@dataclass
class ObjectStore:
    """Where it is, how long it takes (seconds) to list and to hand over weights, and when it was asked to list."""

    folder: Path
    port: int
    list_seconds: float = 0.0
    weights_seconds: float = 0.0
    listed: list[tuple[float, str]] = field(default_factory=list)

    @property
    def repository(self) -> str:
        """The address as Triton takes it."""
        return f"s3://http://127.0.0.1:{self.port}/{BUCKET}/models"

    @property
    def environment(self) -> dict[str, str]:
        """What Triton's S3 client wants to know."""
        return {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_DEFAULT_REGION": "us-east-1"}


@contextmanager
def serving(folder: Path) -> Iterator[ObjectStore]:
    """Serve the store over a folder until the block ends."""

    class Bound(_Handler):
        store: ObjectStore

    with served(HttpServer(Bound)) as server:
        Bound.store = ObjectStore(folder, server.server_port)
        yield Bound.store


class _Handler(Handler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def do_HEAD(self) -> None:
        self._object()

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query.get("prefix", [""])[0])
        else:
            self._object()

    def _list(self, prefix: str) -> None:
        store = self.store
        store.listed.append((time.monotonic(), prefix))
        time.sleep(store.list_seconds)
        files = sorted(path for path in store.folder.rglob("*") if path.is_file())
        keys = [str(path.relative_to(store.folder)) for path in files]
        join = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"1"</ETag><Size>{(store.folder / key).stat().st_size}</Size></Contents>'
            for key in keys
            if key.startswith(prefix)
        )
        self._answer(
            200,
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<IsTruncated>false</IsTruncated>{join}</ListBucketResult>".encode(),
        )

    def _object(self) -> None:
        key = unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")
        path = self.store.folder / key
        if not key:
            self._answer(200, b"")
        elif path.is_file():
            slow = self.store.weights_seconds if path.name == "weights.bin" else 0.0
            self._answer(200, path.read_bytes(), slow)
        else:
            self._answer(404, b"")

    def _answer(self, status: int, body: bytes, seconds: float = 0.0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if self.command == "GET":
            # Bit by bit: a client that receives nothing for seconds asks again.
            for start in range(0, len(body), size := len(body) // 20 + 1):
                time.sleep(seconds / 20)
                self.wfile.write(body[start : start + size])
