"""Answer /ready: whether this Triton should get requests, from the states that /state shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triton_exporter.common.duration import DAY, duration_between
from triton_exporter.common.printable import printable
from triton_exporter.lifecycle.expectations import parse_expected
from triton_exporter.lifecycle.tracker import LISTED_WITHOUT_VERSION, Lifecycle, Record
from triton_exporter.snapshot import ModelVersion

_POLICIES = ("all", "any")
_PARAMETERS = ("models", "policy", "loading")
_MAX_LINES, _MAX_TEXT = 20, 300


def readiness(
    lifecycle: Lifecycle, query: Mapping[str, Sequence[str]], phase: str, now: float
) -> tuple[bool, str]:
    """Return whether Triton should get requests, and why not: `phase`, or the models that are not ready.

    Without models in the query these are the operator's, and without those all that Triton was asked to load.
    Raises ValueError over a mistake in the query.
    """
    for name in query.keys() - set(_PARAMETERS):
        raise ValueError(f"{name!r} is not a parameter; there are {', '.join(_PARAMETERS)}")
    for name in ("policy", "loading"):
        if len(query.get(name, ())) > 1:
            raise ValueError(f"{name} is given more than once")
    try:
        named = parse_expected(word for text in query.get("models", ()) for word in text.split(","))
    except ValueError as error:
        raise ValueError(f"models: {error}") from error
    policy = query.get("policy", _POLICIES)[0]
    if policy not in _POLICIES:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(_POLICIES)}")
    try:
        loading_seconds = duration_between(0, DAY)(query.get("loading", ("0",))[0])
    except ValueError as error:
        raise ValueError(f"loading: {error}") from error

    if not lifecycle.snapshot.live:
        return False, f"not ready: Triton: {phase}"
    wanted = named or lifecycle.expected or dict.fromkeys(lifecycle.expected_models(), ())
    records: dict[str, dict[ModelVersion, Record]] = {}
    for key, record in lifecycle.records.items():
        records.setdefault(key.model, {})[key] = record
    ready, blocking, lines = 0, False, []
    for model, version in sorted((name, each) for name in wanted for each in wanted[name] or ("",)):
        found = {key: each for key, each in records.get(model, {}).items() if version in ("", key.version)}
        if any(each.claim.ready and key not in lifecycle.unproven for key, each in found.items()):
            ready += 1
            continue
        name = f"{model}:{version}" if version else model
        # Of several versions the newest says why.
        versions = sorted(found, key=lambda key: int(key.version) if key.version.isdecimal() else -1)
        if not versions:
            blocking = True
            lines.append(f"{name}: missing: Triton does not list it")
            continue
        claim = found[versions[-1]].claim
        reason = lifecycle.unproven.get(versions[-1], "") if claim.ready else claim.reason
        if claim.is_unversioned:
            reason = LISTED_WITHOUT_VERSION
        loads = found[versions[-1]].first_load and now - found[versions[-1]].since < loading_seconds
        blocking |= not loads
        tolerated = " for the first time, which is tolerated" if loads else ""
        lines.append(f"{name}: {claim.state}{tolerated}: {reason}".removesuffix(": "))
    serves = ready > 0 and (policy == "any" or not blocking)
    counted = f"{'' if serves else 'not '}ready: {ready} of {ready + len(lines)} models"
    counted += "" if ready else ": one at least must be"
    shown = [printable(" ".join(line.split()))[:_MAX_TEXT] for line in lines[:_MAX_LINES]]
    more = [f"and {len(lines) - _MAX_LINES} more"] if len(lines) > _MAX_LINES else []
    return serves, "\n".join([counted, *shown, *more])
