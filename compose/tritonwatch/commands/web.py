"""`tritonwatch web`: serve pages about error budgets, their causes, and the alerts on them."""

from __future__ import annotations

import argparse
import os
import sys

from triton_exporter.app.settings import DoctorSettings, lacks_client
from triton_exporter.common.problem import Problem, ProblemsError
from tritonwatch.parser import declare
from tritonwatch.project import Pages

EXAMPLE = "tritonwatch web --prometheus http://127.0.0.1:9090 --objectives slo/objectives"
OPTIONS = Pages
EXIT_CODES = {0: "stopped by SIGTERM or Ctrl-C", 1: "a mistake in a file, or --listen is in use"}


class _Doctor(DoctorSettings):
    group = "a Triton server, to show the findings of `tritonwatch doctor` on the pages of its models"


_DOCTOR_OPTIONS = _Doctor.options().keys() - {"timeout"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    declare(parser, _Doctor, _DOCTOR_OPTIONS)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    from tritonwatch.web.server import serve  # not at import: --help must not need it

    given = [name for name in _DOCTOR_OPTIONS if getattr(args, name, None)]
    if given and "triton" not in given:
        option = f"--{given[0].replace('_', '-')}"
        raise ProblemsError(Problem(option, "needs --triton URL, the Triton server to examine"))
    if given and lacks_client(args.triton):
        # The image of the compose stack: its other pages need no Triton.
        print(
            "tritonwatch web: no findings of the doctor without: pip install 'tritonwatch[probe]'",
            file=sys.stderr,
        )
        given = []
    return serve(args, _Doctor.read(vars(args), os.environ) if given else None)
