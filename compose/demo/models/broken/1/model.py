"""Multiplies by the number in weights.txt; raises while loading when that file is missing."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        weights = Path(args["model_repository"]) / args["model_version"] / "weights.txt"
        if not weights.exists():
            raise FileNotFoundError(f"No such file or directory: {weights}")
        self.factor = np.float32(weights.read_text())

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * self.factor)]))
        return responses
