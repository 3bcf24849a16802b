"""Triton's own words reach on-call from the exporter's /state, whatever the model is doing at that moment."""

from __future__ import annotations

from triton_alerts.bridge.enrich import reasons_in

FAILURE = {"at": None, "version": "1", "text": "weights missing", "source": "index"}


def _entry(**values: object) -> dict[str, object]:
    return {
        "model": "broken",
        "version": "1",
        "ready": False,
        "reason": "",
        "last_load_failure": None,
    } | values


def test_the_current_reason_comes_first() -> None:
    """A model that is unavailable now is told by what Triton says now."""
    state = {"models": [_entry(reason="no such file", last_load_failure=FAILURE)]}

    assert {"broken v1": "no such file"} == reasons_in(state, {"broken"})


def test_a_model_that_is_being_retried_keeps_its_last_reason() -> None:
    """LOADING again carries no reason of its own: the last failure's is still the cause."""
    state = {"models": [_entry(last_load_failure=FAILURE)]}

    assert {"broken v1": "weights missing"} == reasons_in(state, {"broken"})


def test_a_ready_model_and_a_strangers_model_have_no_reason() -> None:
    """A recovered model is not blamed with its past, nor one the incident is not about."""
    state = {"models": [_entry(ready=True, last_load_failure=FAILURE), _entry(model="other", reason="x")]}

    assert {} == reasons_in(state, {"broken"})


def test_a_state_in_another_shape_is_no_reason() -> None:
    """What is not understood is left out, never an error."""
    for state in (None, [], {"models": [7, {"model": "broken", "last_load_failure": "text"}]}):
        assert {} == reasons_in(state, {"broken"})
