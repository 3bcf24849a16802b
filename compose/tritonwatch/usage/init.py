"""The options of `tritonwatch init`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from triton_exporter.app.settings import TritonAccess
from triton_exporter.common.options import (
    Form,
    Key,
    OptionsModel,
    Variable,
    adder,
    api_url,
    each,
    metrics_page,
)
from triton_exporter.common.problem import Problem
from triton_slo.problem_words import count
from tritonwatch.parser import declare
from tritonwatch.project import FILE, PrometheusAccess

EXAMPLE = "tritonwatch init --triton http://127.0.0.1:8000 --prometheus http://127.0.0.1:9090"
OPTIONS = PrometheusAccess
EXIT_CODES = {0: "written", 1: "Triton or Prometheus did not respond; nothing was written"}


Access = TypeVar("Access", bound=TritonAccess)


def _triton(text: str) -> tuple[str, str | None]:
    # In a project file the Tritons to watch are EXPORTER=TRITON[,METRICS].
    triton, _, metrics = (text.partition("=")[2] or text).partition(",")
    return api_url(triton), metrics_page(metrics) if metrics else None


class Tritons(OptionsModel):
    section = "exporter"

    triton: Annotated[
        tuple[tuple[str, str | None], ...],
        each(_triton),
        Form("URL", repeated=True),
        Key("tritons"),
        Variable("TRITONWATCH_EXPORTER_TRITON"),
    ] = ()
    """URL of Triton's API, such as http://127.0.0.1:8000 or grpc://127.0.0.1:8001 (repeat for each Triton; default: the tritons of the
    project file); where only the metrics can be reached, leave it out and give --triton-metrics"""
    triton_metrics: Annotated[tuple[str, ...], each(metrics_page), Form("URL", repeated=True)] = ()
    """metrics endpoint of each Triton, in the same order, by default with the path /metrics (default: port 8002 of the
    same host)"""

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return what is wrong with the two together."""
        if not (self.triton or self.triton_metrics):
            fix = f"give --triton URL, or write it into {FILE} as tritons"
            yield Problem("--triton", "is missing", fix)
        urls = [url for url, metrics in self.triton if not metrics]
        hosts = {urlsplit(url).hostname for url in urls}
        if len(hosts) < len(urls) and not self.triton_metrics:
            reason = f"is missing: {' and '.join(urls)} cannot all have their metrics at port 8002"
            yield Problem("--triton-metrics", reason, "give it once for each --triton, in the same order")
        if self.triton and self.triton_metrics and len(self.triton_metrics) != len(self.triton):
            reason = f"{len(self.triton_metrics)} addresses for {count(len(self.triton), 'Triton')}"
            yield Problem(places["triton_metrics"], reason, "one for each --triton, in the same order")

    @classmethod
    def read_each(cls, args: argparse.Namespace, access: type[Access]) -> list[Access]:
        """Return the access to each Triton that the command line names, or else the project file."""
        tritons = cls.read(vars(args), os.environ, args.project_file)
        pages = tritons.triton_metrics or [page for _, page in tritons.triton]
        return [
            access.read({**vars(args), "triton": address, "triton_metrics": page}, os.environ)
            for address, page in zip_longest((url for url, _ in tritons.triton), pages)
        ]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add = adder(parser.add_argument)
    declare(parser, Tritons)
    declare(parser, TritonAccess, TritonAccess.options().keys() - {"triton", "triton_metrics", "timeout"})
    add(
        "--out FILE",
        "file to write, or - for standard output (default: proposed.yaml in the folder of objectives of the project)",
    )
    add("--force", "replace an existing file")
    declare(parser, OPTIONS)
