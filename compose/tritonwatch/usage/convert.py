"""The options of `tritonwatch convert`."""

from __future__ import annotations

import argparse

from triton_exporter.common.options import adder
from tritonwatch.usage.arguments import path

EXAMPLE = "tritonwatch convert --from sloth slos.yaml --out objectives/converted.yaml"
EXIT_CODES = {
    0: "converted",
    1: "mistakes in the files",
    3: "converted, except fields that objectives cannot express",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = adder(parser.add_argument)
    add("files FILE", "YAML file, or a folder of them", path, nargs="+")
    add("--from", "format of the files", dest="source", choices=("sloth", "openslo"), required=True)
    add("--out FILE", "file to write (default: standard output)", path)
    add("--force", "overwrite --out if it exists")
    add(
        "--window DURATION",
        "period of SLOs whose file does not contain a period, as with Sloth (default: 30d)",
        _window_text,
        default="30d",
    )


def _window_text(text: str) -> str:
    from triton_slo.objective.model import Rolling  # takes long to load, and the help does without

    try:
        return Rolling(rolling=text).rolling
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a window of 7 to 90 whole days, such as 28d"
        ) from None
