"""The options of `tritonwatch web`."""

from __future__ import annotations

import argparse

from triton_exporter.app.settings import DoctorSettings
from tritonwatch.parser import declare
from tritonwatch.project import Pages

EXAMPLE = "tritonwatch web --prometheus http://127.0.0.1:9090 --objectives slo/objectives"
OPTIONS = Pages
EXIT_CODES = {0: "stopped by SIGTERM or Ctrl-C", 1: "a mistake in a file, or --listen is in use"}


class Doctor(DoctorSettings):
    group = "a Triton server, to show the findings of `tritonwatch doctor` on the pages of its models"


DOCTOR_OPTIONS = Doctor.options().keys() - {"timeout"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    declare(parser, Doctor, DOCTOR_OPTIONS)
