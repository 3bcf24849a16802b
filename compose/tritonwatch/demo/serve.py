"""Run a real Triton with the demo's models and send traffic to them, as the only program of a container."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from tritonwatch import files
from tritonwatch.demo.load import LoadGenerator
from tritonwatch.local import CannotStartError, TritonPorts, TritonServer


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM: 0 then, 1 when Triton cannot start or ends unexpectedly."""
    parser = argparse.ArgumentParser(prog="python -m tritonwatch.demo.serve", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1", help="address of the ports (default: 127.0.0.1)")
    parser.add_argument("--http-port", type=int, default=8000, help="port of the HTTP API (default: 8000)")
    parser.add_argument("--grpc-port", type=int, default=8001, help="port of the gRPC API (default: 8001)")
    parser.add_argument("--metrics-port", type=int, default=8002, help="port of the metrics (default: 8002)")
    parser.add_argument("--load", action="store_true", help="send inference requests to the models")
    args = parser.parse_args(argv)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with tempfile.TemporaryDirectory(prefix="tritonwatch-demo-") as folder:
        return _serve(Path(folder), args, stop)


def _serve(folder: Path, args: argparse.Namespace, stop: threading.Event) -> int:
    shutil.copytree(files.demo_models(), folder / "models")
    triton = TritonServer(
        folder / "models",
        folder,
        TritonPorts(args.http_port, args.grpc_port, args.metrics_port),
        control="poll",
        address=args.address,
    )
    load = LoadGenerator(triton.http_url)
    try:
        triton.start()
        triton.wait_live(120)
        if args.load:
            load.start()
        while not stop.wait(1.0):
            if triton.process is None or triton.process.poll() is not None:
                print(f"Triton ended unexpectedly; see {triton.log}", file=sys.stderr)
                return 1
    except CannotStartError as problem:
        print(problem, file=sys.stderr)
        return 1
    finally:
        load.stop()
        triton.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
