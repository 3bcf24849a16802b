"""Serve the pages of many exporters in one process: `python fleet_pages.py PORT PAGES`.

PAGES is a JSON file with two pages of a real exporter, `before` and `after`, `seconds` apart. GET /N/metrics
continues them as the N-th exporter would: a counter that grew keeps growing at that rate, times 1 to 5 by server.
Model number i fails `share(i)` of its requests, so that every budget is known.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import loopback

FAILED = re.compile(r'nv_inference_request_failure\{model="model_(\d+)",reason="BACKEND"')
SUCCEEDED = re.compile(r'nv_inference_request_success\{model="model_(\d+)"')


def share(model: int) -> float:
    """Return the share of a model's requests that fail: 0 to twice the budget of a target of 99.9 %."""
    return (model % 5) * 0.0005


class Pages:
    """A page with holes for the values that move."""

    def __init__(self, before: str, after: str, seconds: float) -> None:
        first = [_split(line) for line in before.splitlines()]
        then = dict(_split(line) for line in after.splitlines())
        succeeded = {
            match[1]: (float(then[name]) - float(value)) / seconds
            for name, value in first
            if (match := SUCCEEDED.match(name))
        }
        lines: list[str] = []
        self._start: list[float] = []
        self._pace: list[float] = []
        for name, value in first:
            pace, form = 0.0, "%d"
            if match := FAILED.match(name):
                failing = share(int(match[1]))
                pace, form = succeeded[match[1]] * failing / (1 - failing), "%.4f"
            elif value and name in then and _moves_on(name):
                pace = (float(then[name]) - float(value)) / seconds
                form = "%d" if float(value).is_integer() and float(then[name]).is_integer() else "%.6f"
            if pace > 0:
                lines.append(f"{name.replace('%', '%%')} {form}")
                self._start.append(float(value))
                self._pace.append(pace)
            else:
                lines.append(f"{name} {value}".rstrip().replace("%", "%%"))
        self._template = "\n".join(lines) + "\n"
        self._began = time.time()

    def page(self, server: int) -> str:
        """Return the page of this server now."""
        passed = (time.time() - self._began) * (1 + server % 5)
        values = [start + pace * passed for start, pace in zip(self._start, self._pace, strict=True)]
        return self._template % tuple(values)


def _split(line: str) -> tuple[str, str]:
    if line.startswith("#"):
        return line, ""
    name, _, value = line.rpartition(" ")
    return name, value


def _moves_on(name: str) -> bool:
    metric = name.partition("{")[0]
    return metric.endswith(("_total", "_count", "_sum", "_bucket", "_us", "_success"))


class Handler(loopback.Handler):
    protocol_version = "HTTP/1.1"
    pages: Pages

    def do_GET(self) -> None:
        self.reply(self.pages.page(int(self.path.split("/")[1] or 0)))


if __name__ == "__main__":
    content = json.loads(Path(sys.argv[2]).read_text())
    Handler.pages = Pages(content["before"], content["after"], content["seconds"])
    loopback.HttpServer(Handler, int(sys.argv[1])).serve_forever()
