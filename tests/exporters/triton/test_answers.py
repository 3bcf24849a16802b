"""Test the reader of Triton's JSON answers: any answer gives its valid part, and no exception."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.captures import CAPTURES
from triton_exporter.lifecycle.load_failures import classify
from triton_exporter.snapshot import IndexEntry, InputTensor, InstanceGroup, QueuePolicy
from triton_exporter.triton.poll import (
    AnswerError,
    error_text,
    parse_config,
    parse_index,
    parse_server,
    parse_statistics,
)

_WORDS = [
    "name", "version", "state", "reason", "model_stats", "inference_stats", "batch_stats", "batch_size",
    "success", "count", "ns", "compute_infer", "memory_usage", "response_stats", "last_inference",
    "instance_group", "gpus", "kind", "dynamic_batching", "default_queue_policy", "max_queue_size",
    "priority_queue_policy", "1", "input", "dims", "ensemble_scheduling", "step", "model_version",
    "parameters", "string_value", "extensions", "error"
]  # fmt: skip

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=6),
    max_leaves=20,
)


@given(_JSON.map(lambda answer: json.dumps(answer).encode()) | st.binary(max_size=200))
def test_any_body_is_a_value_or_an_answer_error(body: bytes) -> None:
    """Each reader takes every JSON document, at the right place or at a wrong one, and what is no JSON."""
    for parse in (parse_index, parse_statistics, parse_config, parse_server):
        with suppress(AnswerError):
            parse(body)
    assert isinstance(error_text(body), str)


def test_a_bad_entry_is_left_out_alone() -> None:
    """Entries of wrong types are dropped or read as far as they go."""
    body = b'[null, 7, {"name": 3}, {"name": "a", "version": "1", "state": "READY"}, {"name": "b", "version": 2}]'

    assert (IndexEntry("a", "1", "READY"), IndexEntry("b")) == parse_index(body)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        pytest.param(rb"\ud800", "?", id="half a character"),
        pytest.param(b"mod\xe8le", "mod\ufffdle", id="Latin-1, as a folder can be named"),
        pytest.param(rb"\ud83d\ude00", "\U0001f600", id="a whole character in two escapes"),
    ],
)
def test_a_name_that_is_not_utf_8_is_left_out_alone(name: bytes, read: str) -> None:
    """Every text read can be written on a page and in a path, and the models beside it are read too."""
    body = (
        b'[{"name": "' + name + b'", "state": "READY"}, {"name": "b", "version": "1", "reason": "caf\xe9"}]'
    )

    assert (IndexEntry(read, "", "READY"), IndexEntry("b", "1", "", "caf\ufffd")) == parse_index(body)


@pytest.mark.parametrize("number", ["9" * 400, '"' + "9" * 5000 + '"', "-1e999", "NaN"])
def test_a_number_that_cannot_be_is_none(number: str) -> None:
    """No count or time of Triton's has hundreds of digits."""
    counts = '"inference_stats": {"success": {"count": %s}}, "execution_count": 7' % number  # noqa: UP031
    body = '{"model_stats": [{"name": "a", %s}]}' % counts  # noqa: UP031

    (read,) = parse_statistics(body.encode())
    assert (0, 7) == (read.success, read.executions)


def test_numbers_of_grpc_json_are_numbers() -> None:
    """gRPC writes 64-bit numbers as strings."""
    body = b'{"name": "a", "max_batch_size": "8", "input": [{"name": "X", "dims": ["-1", 4, null]}]}'
    config = parse_config(body)

    assert 8 == config.max_batch_size
    assert (InputTensor("X", "", (-1, 4, 0)),) == config.inputs


def test_configurations_of_a_real_server_are_read_whole() -> None:
    """Queue policies by priority, ensembles, decoupled models, as Triton 2.51 wrote them."""

    def config(name: str):
        return parse_config((CAPTURES / "triton" / f"triton-2.51-cpu-lab.config.{name}.json").read_bytes())

    prio = config("prio")
    assert QueuePolicy(10, 0, "REJECT") == prio.priority_queues[1]
    assert (InstanceGroup("KIND_CPU", 1),) == prio.instance_groups
    assert (InputTensor("X", "FP32", (4,)),) == prio.inputs
    ensemble = config("ens")
    assert ensemble.is_ensemble
    assert [("pre", -1), ("post", -1)] == [(step.model, step.version) for step in ensemble.steps]
    assert config("decoup").decoupled
    assert not config("adder").decoupled
    assert config("cached").response_cache


def test_statistics_of_a_real_server_add_up() -> None:
    """Batches times their sizes are the inferences, as Triton 2.51 counted them."""
    body = (CAPTURES / "triton" / "triton-2.51-cpu-lab.models_stats.json").read_bytes()
    statistics = parse_statistics(body)
    # Executions that fail have a batch size, and no inferences.
    inferences = {
        (model_stat["name"], model_stat["version"]): model_stat.get("inference_count", 0)
        for model_stat in json.loads(body)["model_stats"]
        if not model_stat["inference_stats"]["fail"].get("count")
    }
    batched = [each for each in statistics if each.batches and (each.model, each.version) in inferences]

    assert len(batched) > 5
    for statistic in batched:
        assert inferences[statistic.model, statistic.version] == sum(
            batch.size * batch.executions for batch in statistic.batches
        )
        assert statistic.executions == sum(batch.executions for batch in statistic.batches)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (
            "python_error",
            "Internal: RuntimeError: weights missing\n\nAt:\n  /models/a/1/model.py(3): initialize\n",
        ),
        ("missing_file", "Internal: FileNotFoundError: No such file or directory: /models/a/weights.txt\n"),
        (
            "missing_file",
            "Internal: Python model file not found in '/models/multi/1/model.py', does not exist",
        ),
        ("python_error", "Internal: ModuleNotFoundError: No module named 'torch'\n\nAt:\n"),
        (
            "out_of_memory",
            "Internal: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n\nAt:\n",
        ),
        ("out_of_memory", "Internal: onnx runtime error 6: Failed to allocate memory for requested buffer"),
        ("missing_backend", "Invalid argument: unable to find backend library for backend 'nosuch', try"),
        ("missing_backend", "Not found: unable to load shared library: libcudart.so.12: cannot open shared"),
        (
            "bad_config",
            "Invalid argument: instance group a_0 of model a specifies invalid or unsupported gpu id",
        ),
        ("bad_config", "model appears in two or more repositories"),
        ("bad_config", "at least one version must be available under the version policy of model 'nover'"),
        ("bad_config", "failed to read text proto from /models/badcfg/config.pbtxt"),
        (
            "dependency_failed",
            "ensemble 'e' depends on 'bad' which has no loaded version. Model 'bad' loading",
        ),
        # Of public reports.
        ("python_error", "Internal: Stub process 'ranker_0_0' is not healthy."),
        (
            "out_of_memory",
            "Internal: Unable to initialize shared memory key 'triton_python_backend_shm_region_2' to requested",
        ),
        ("bad_config", "Invalid argument: unexpected directory name 'v1' in model 'ranker'"),
        ("invalid_model", "Internal: unable to create TensorRT engine"),
        (
            "invalid_model",
            "Internal: onnx runtime error 7: Load model from /m/1/model.onnx failed:Protobuf parsing",
        ),
        (
            "invalid_model",
            "Internal: failed to load model 'r': PytorchStreamReader failed reading zip archive",
        ),
        (
            "missing_file",
            "Internal: Could not get MetaData for object at s3://models/ranker due to exception",
        ),
        (
            "missing_file",
            "Internal: PermissionError: [Errno 13] Permission denied: '/models/ranker/1/w'\n\nAt:\n",
        ),
        ("other", "Unavailable: something nobody has seen"),
        ("other", ""),
    ],
)
def test_load_errors_are_sorted_into_their_class(reason: str, text: str) -> None:
    """Texts of real servers, each in the class that states what to do."""
    assert reason == classify(text)


def test_a_long_load_error_is_sorted_in_time_and_by_both_its_ends() -> None:
    """One long word, or a pattern's beginning over and over, costs no seconds; the last line still counts."""
    started = time.process_time()
    classes = [classify(text) for text in ("x" * 200_000, "ensemble " * 20_000, "failed to load " * 20_000)]

    assert ["other"] * 3 == classes
    assert "out_of_memory" == classify("line\n" * 50_000 + "CUDA out of memory")
    assert time.process_time() - started < 1
