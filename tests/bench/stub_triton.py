"""Stub a large Triton in a process of its own: `python stub_triton.py PORT MODELS [CHURN [ACTIVE]]`.

Bodies are made beforehand, so that serving them costs almost nothing. With CHURN, every CHURN-th
exposition has one model replaced by a new one. Of all models the share ACTIVE has counters that move. GET /page serves what was PUT there.
"""

from __future__ import annotations

import json
import sys
from itertools import count, cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dashboards.fleet import exposition
from support import loopback

MOMENTS = 10


class Stub(loopback.HttpServer):
    def __init__(self, port: int, models: int, churn: int, active: float = 1.0) -> None:
        super().__init__(Handler, port)
        self.models, self.churn, self.numbers = models, churn, count()
        self.moments = [] if churn else [exposition(models, moment) for moment in range(MOMENTS)]
        if active < 1:
            self.moments = [_resting(body, self.moments[0], int(active * models)) for body in self.moments]
        names = [f"model_{number}" for number in range(models)]
        self.index = json.dumps([{"name": name, "version": "1", "state": "READY"} for name in names]).encode()
        active_models = int(active * models)
        self.statistics = cycle(
            json.dumps(
                {
                    "model_stats": [
                        _statistics(name, moment if number < active_models else 0)
                        for number, name in enumerate(names)
                    ]
                }
            ).encode()
            for moment in range(MOMENTS)
        )
        self.page = b""

    def metrics(self) -> bytes:
        number = next(self.numbers)
        if self.churn:
            return exposition(self.models, number % 1000, first=number // self.churn)
        return self.moments[number % MOMENTS]


class Handler(loopback.Handler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self.reply(self.server.metrics())
        elif path == "/page":
            self.reply(self.server.page)
        elif path == "/v2/models/stats":
            self.reply(next(self.server.statistics))
        elif path.endswith("/config"):
            self.reply(b'{"name":"%s","max_batch_size":8}' % path.split("/")[3].encode())
        elif path.startswith("/v2/health/") or path.endswith("/ready"):
            self.reply(b"")
        elif path == "/v2":
            self.reply(b'{"name":"triton","version":"2.51.0","extensions":["statistics"]}')
        else:
            self.reply(b"{}", 404)

    def do_POST(self) -> None:
        self.body()
        self.reply(self.server.index if self.path == "/v2/repository/index" else b"{}")

    def do_PUT(self) -> None:
        self.server.page = self.body()
        self.reply(b"")


def _resting(body: bytes, first: bytes, active: int) -> bytes:
    """Return a body in which only the first models have moved since the first body."""
    moving = {f"model_{number}" for number in range(active)}
    pairs = zip(first.decode().splitlines(), body.decode().splitlines(), strict=True)
    return "".join(
        f"{new if old != new and new.split(chr(34))[1] in moving else old}\n" for old, new in pairs
    ).encode()


def _statistics(name: str, moment: int) -> dict[str, object]:
    batch = {
        key: {"count": 5 + moment, "ns": 1000 * (5 + moment)}
        for key in ("compute_input", "compute_infer", "compute_output")
    }
    return {
        "name": name,
        "version": "1",
        "last_inference": 1_700_000_000_000,
        "inference_count": 9 + moment,
        "execution_count": 5 + moment,
        "inference_stats": {"success": {"count": 7 + moment, "ns": 9}, "fail": {"count": 0, "ns": 0}},
        "batch_stats": [{"batch_size": 1, **batch}],
        "memory_usage": [],
        "response_stats": {},
    }


if __name__ == "__main__":
    churn, active = (sys.argv[3:] + ["0", "1"][len(sys.argv[3:]) :])[:2]
    Stub(int(sys.argv[1]), int(sys.argv[2]), int(churn), float(active)).serve_forever()
