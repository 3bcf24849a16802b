"""Write model repositories for a real Triton: small Python models that change their behaviour by files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MODEL = """\
import os
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.here = Path(args["model_repository"]) / args["model_version"]
        time.sleep(self.number("load_seconds"))
        if (self.here / "raise").exists():
            raise RuntimeError((self.here / "raise").read_text())
        self.delay = self.number("delay_seconds")
        self.executions = 0
        # Not in the repository, which Triton may poll for changes.
        self.executing = self.here.parents[2] / f"{args['model_name']}.executing"

    def execute(self, requests):
        self.executing.touch()
        time.sleep(self.delay)
        self.executing.unlink(missing_ok=True)
        if (self.here / "die").exists():
            os._exit(1)
        self.executions += 1
        every = self.number("fail_every")
        if every and self.executions % every == 0:
            raise RuntimeError("fails on purpose")
        inputs = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for x in inputs]

    def number(self, name):
        path = self.here / name
        return float(path.read_text()) if path.exists() else 0.0
"""

_CONFIG = """\
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""


@dataclass(frozen=True)
class Repository:
    """A folder of models; every method changes the disk only."""

    path: Path

    def model(self, name: str, *versions: str, config: str = "", **files: object) -> Path:
        """Write one model with the given versions ("1" if none); `files` go into each version's folder.

        Files a model heeds: `raise` (text of the error while loading), `load_seconds`, `delay_seconds` (of
        each execution), `die` (ends the stub at the next execution), `fail_every` (2: every second
        execution fails).
        """
        folder = self.path / name
        for version in versions or ("1",):
            self.version(name, version, **files)
        write(folder / "config.pbtxt", _CONFIG + config)
        return folder

    def is_executing(self, name: str) -> bool:
        """Whether a request is in the model now."""
        return (self.path.parent / f"{name}.executing").exists()

    def version(self, name: str, version: str, **files: object) -> Path:
        """Write one version folder of a model."""
        folder = self.path / name / version
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            write(folder / file, str(content))
        write(folder / "model.py", _MODEL)
        return folder

    def ensemble(self, name: str, *steps: str, version: str = "1") -> Path:
        """Write an ensemble that runs the steps one after the other."""
        folder = self.path / name
        (folder / version).mkdir(parents=True, exist_ok=True)
        tensors = ["X", *(f"t{number}" for number in range(1, len(steps))), "Y"]
        parts = ",\n".join(
            f'{{ model_name: "{step}" model_version: -1 '
            f'input_map {{ key: "X" value: "{tensors[number]}" }} '
            f'output_map {{ key: "Y" value: "{tensors[number + 1]}" }} }}'
            for number, step in enumerate(steps)
        )
        text = _CONFIG.replace('backend: "python"', 'platform: "ensemble"').partition("instance_group")[0]
        write(folder / "config.pbtxt", f"{text}ensemble_scheduling {{ step [ {parts} ] }}\n")
        return folder


def write(path: Path, text: str) -> None:
    """Replace a file at once, so that Triton's poll never reads half of it."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    os.replace(beside, path)
