"""`tritonwatch web`: serve pages about error budgets, their causes, and the alerts on them."""

from __future__ import annotations

import argparse
import os
import sys

from triton_exporter.app.settings import lacks_client
from triton_exporter.common.problem import Problem, ProblemsError
from tritonwatch.usage import DOCTOR_OPTIONS, Doctor
from tritonwatch.web.server import serve


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    given = [name for name in DOCTOR_OPTIONS if getattr(args, name, None)]
    triton = getattr(args, "triton", None) or os.environ.get(Doctor.options()["triton"].variable.name)
    if given and not triton:
        option = f"--{given[0].replace('_', '-')}"
        raise ProblemsError(Problem(option, "needs --triton URL, the Triton server to examine"))
    if triton and lacks_client(triton):
        # The image of the compose stack: its other pages need no Triton.
        print(
            "tritonwatch web: no findings of the doctor without: pip install 'tritonwatch[exporter]'",
            file=sys.stderr,
        )
        triton = None
    return serve(args, Doctor.read(vars(args), os.environ) if triton else None)
