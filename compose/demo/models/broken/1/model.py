"""Multiplies by the number in weights.txt; raises while loading when that file is missing."""

from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


def tensor(name, array):
    # The python backend of Triton 2.51 reads an array of numpy 2 as empty, unless it comes through DLPack.
    through_dlpack = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
    return pb_utils.Tensor.from_dlpack(name, array) if through_dlpack else pb_utils.Tensor(name, array)


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
            responses.append(pb_utils.InferenceResponse([tensor("Y", x * self.factor)]))
        return responses
