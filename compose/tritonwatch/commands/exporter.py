"""`tritonwatch exporter`: serve the enriched series of one Triton."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from triton_exporter.app import Exporter
from triton_exporter.distribution.buckets import Buckets, ThresholdError, thresholds
from triton_exporter.serving import Server
from triton_exporter.settings import Settings

EXAMPLE = "tritonwatch exporter --triton http://127.0.0.1:8000"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--triton", required=True, metavar="URL", type=_url, help="Triton's HTTP API")
    parser.add_argument(
        "--triton-metrics",
        metavar="URL",
        type=_url,
        help="Triton's metrics (default: /metrics on port 8002 of the same host)",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_address,
        default=("127.0.0.1", 9401),
        help="where to serve (default: 127.0.0.1:9401)",
    )
    parser.add_argument(
        "--gpu",
        choices=("auto", "dcgm", "nvml", "triton", "none"),
        default="auto",
        help="where GPU series come from (default: auto, the best that answers)",
    )
    parser.add_argument(
        "--dcgm-url",
        metavar="URL",
        type=_url,
        help="dcgm-exporter's metrics (default: port 9400 of this machine)",
    )
    parser.add_argument(
        "--gpu-devices",
        metavar="GPU-UUID[/INSTANCE],...",
        type=_words,
        default=(),
        help="GPUs that Triton sees, in the order of its CUDA devices (default: inferred)",
    )
    parser.add_argument(
        "--gpu-models",
        metavar="PATTERN,...",
        type=_words,
        default=(),
        help="models that are known to run on the GPUs their config names, such as 'embed*'",
    )
    parser.add_argument(
        "--expect",
        metavar="MODEL[:VERSION]",
        action="append",
        default=[],
        help="a model that should serve; may be repeated",
    )
    parser.add_argument(
        "--buckets-from",
        metavar="DIR",
        type=Path,
        help="objectives whose thresholds become bounds of the latency and queue histograms",
    )
    parser.add_argument(
        "--otlp-listen",
        metavar="HOST:PORT",
        type=_address,
        help="receive Triton's traces here (OTLP over HTTP, such as 127.0.0.1:4318)",
    )
    parser.add_argument(
        "--trace-file", metavar="FILE", type=Path, help="read the files of Triton's own trace mode"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    host, port = args.listen
    try:
        buckets = Buckets(thresholds=thresholds(args.buckets_from) if args.buckets_from else {})
    except ThresholdError as error:
        print(f"tritonwatch exporter: {error}", file=sys.stderr)
        return 1
    settings = Settings(
        triton_url=args.triton,
        metrics_url=args.triton_metrics or metrics_url(args.triton),
        gpu=args.gpu,
        dcgm_url=args.dcgm_url or "",
        gpu_devices=args.gpu_devices,
        gpu_models=args.gpu_models,
        pod_name=os.environ.get("POD_NAME", ""),
        listen_host=host,
        listen_port=port,
        buckets=buckets,
        otlp_listen=args.otlp_listen,
        trace_file=args.trace_file,
    )
    try:
        exporter = Exporter(settings, _expected(args.expect))
    except OSError as error:
        print(f"tritonwatch exporter: cannot receive traces: {error.strerror}", file=sys.stderr)
        return 1
    try:
        server = Server(host, port, exporter.pages())
    except OSError as error:
        print(f"tritonwatch exporter: cannot listen on {host}:{port}: {error.strerror}", file=sys.stderr)
        return 1
    with server:
        exporter.start()
        _end_with_signals(server)
        print(f"serving {server.url}/metrics for {settings.triton_url}", file=sys.stderr, flush=True)
        server.serve_forever(poll_interval=0.1)
    exporter.stop()
    return 0


def metrics_url(triton_url: str) -> str:
    """Triton's metrics on its default port, on the same host as its API."""
    host = urlsplit(triton_url).hostname or ""
    return f"http://[{host}]:8002/metrics" if ":" in host else f"http://{host}:8002/metrics"


def _end_with_signals(server: Server) -> None:
    def end(_signal: int, _frame: FrameType | None) -> None:
        # shutdown() waits for serve_forever to return, which this very thread is running.
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


def _expected(words: list[str]) -> dict[str, tuple[str, ...]]:
    expected: dict[str, tuple[str, ...]] = {}
    for word in words:
        model, _, version = word.partition(":")
        expected[model] = (*expected.get(model, ()), *([version] if version else []))
    return expected


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _url(text: str) -> str:
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise argparse.ArgumentTypeError(f"{text!r} is no URL such as http://127.0.0.1:8000")
    return url.rstrip("/")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no HOST:PORT such as 127.0.0.1:9401")
    return host.strip("[]") or "127.0.0.1", int(port)
