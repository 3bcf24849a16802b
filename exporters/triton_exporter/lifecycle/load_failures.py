"""Count the failed loads of models, each attempt once, from what polls and Triton's log show.

Triton's load errors are sorted into a closed set of classes; the text itself is never a label.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from triton_exporter.snapshot import Claim, ModelVersion

NOT_LISTED = "Triton does not list the model: its directory is missing, or contains no version"
"""Reason that the exporter gives for an expected model that Triton has never listed."""

# First match wins, so the more specific pattern comes first: a Python traceback that ends in "CUDA out of
# memory" is a lack of memory.
_PATTERNS: dict[str, tuple[str, ...]] = {
    "out_of_memory": (
        "out of memory",
        "OutOfMemory",
        "MemoryError",
        "OUT_OF_MEMORY",
        "bad_alloc",
        "cannot allocate",
        "failed to allocate",
        "insufficient (gpu |device )?memory",
        # A container has 64 MB of it unless it asks for more.
        "shared memory (key|region|pool)",
        "dev/shm",
    ),
    "dependency_failed": ("depends on '", "ensemble .* no loaded version", "contains models that are not"),
    "missing_backend": (
        "unable to find .*backend",
        "backend library",
        "unable to load shared library",
        r"failed to load .*\.so",
        "must specify 'platform'.*'backend'",
    ),
    "missing_file": (
        "No such file",
        "file not found",
        "FileNotFoundError",
        "permission denied",
        "MetaData for",  # of an object or bucket on S3
        "failed to stat file",
        "unable to find '",
        "does( not|n't) exist",
        "failed to open",
        "unable to (open|read)",
    ),
    "bad_config": (
        "invalid argument",
        r"config\.pbtxt",
        "model configuration",
        "autofill",
        "instance group",
        "two or more repositories",
        "at least one version",
        "unexpected directory name",
        "version policy",
        "failed to poll",
        "unable to get the .* model config",
        "^in ensemble ",
        "^ensemble .* allows maximum batch size",
        "circular dependency",
    ),
    "invalid_model": (
        "TensorRT engine",
        "onnx ?runtime error",
        "Protobuf parsing failed",
        "PytorchStreamReader",
    ),
    "python_error": (r"model\.py", "stub process", "Traceback", r"\wError\b", r"\wException\b", "At:\n"),
}

_CLASSES = {reason: re.compile("|".join(words), re.IGNORECASE) for reason, words in _PATTERNS.items()}

_HALF = 4096
"""Characters read at each end: a pattern with `.*` takes time that grows with the square of the length."""


def classify(text: str) -> str:
    """Return the class of a load error: one of the catalogue's LOAD_FAILURE_REASONS, `other` when none fits."""
    if len(text) > 2 * _HALF:
        text = f"{text[:_HALF]}\n{text[-_HALF:]}"
    return next((reason for reason, pattern in _CLASSES.items() if pattern.search(text)), "other")


MEMORY_SECONDS = 3600.0
"""Time for which the failures of a model are counted and shown after it has left Triton."""

_MAX_TEXTS = 16
"""Texts of an ensemble's failures that are remembered."""

UNAVAILABLE_STEPS = " contains models that are not available or ambiguous: "


@dataclass(frozen=True, slots=True)
class LastFailure:
    """The last failed load, request or probe of a model: when it was seen (Unix seconds), the text, and its source."""

    at: float
    version: str
    text: str
    source: str


@dataclass
class LoadFailures:
    """The failed loads of all models of one server; `counts` and `reloads` are by model and reason.

    `reloads` are those while the model went on serving, which no API shows. `not_serving` has the models that
    failed in the log and were not seen to serve, or to be unloaded, since.
    """

    log_read: bool = False
    counts: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    reloads: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    last: dict[str, LastFailure] = field(default_factory=dict, init=False)
    not_serving: set[str] = field(default_factory=set, init=False)
    changes: int = field(default=0, init=False)  # of anything that is shown
    _claims: Mapping[ModelVersion, Claim] = field(default_factory=dict, init=False)  # of the last poll
    _logged: set[str] = field(default_factory=set, init=False)  # models that failed in the log
    _ensemble_texts: dict[str, deque[str]] = field(
        default_factory=dict, init=False
    )  # counted since it served
    _last_named: dict[str, float] = field(default_factory=dict, init=False)
    _seen: float = field(default=0.0, init=False)  # when the last poll was

    @property
    def models(self) -> frozenset[str]:
        """Models whose failures are counted: those that are there, and those that left of late."""
        return frozenset(self._last_named)

    def observe(self, claims: Mapping[ModelVersion, Claim], at: float) -> None:
        """Take in what a poll shows of every model: which serve again, and which have left long ago."""
        for model in {key.model for key in self._claims}:  # named again by polls that showed the same
            self._last_named[model] = max(self._seen, self._last_named.get(model, 0.0))
        self._last_named |= dict.fromkeys({key.model for key in claims}, at)
        self._seen = at
        self._forget({model for model, named in self._last_named.items() if at - named > MEMORY_SECONDS})
        for key, claim in claims.items():
            if claim.ready or claim.state == "unloaded":
                self.not_serving.discard(key.model)
            if claim.ready:
                self._ensemble_texts.pop(key.model, None)
        self._claims = claims

    def observe_same(self, at: float) -> bool:
        """Take in a poll that shows the same claims as the last; return False if it has to be observed in full."""
        if len(self._last_named) != len({key.model for key in self._claims}):
            return False  # another model is to be forgotten in time
        self._seen = at
        return True

    def count_seen(self, key: ModelVersion, text: str, at: float, *, first_poll: bool) -> None:
        """Count a failed load that a poll shows, unless the log reports it, too.

        The log reports every attempt, once it is read: what failed before the exporter started is counted from
        the index, what fails later from the log.
        """
        if not self.log_read or (first_poll and key.model not in self._logged):
            self.changes += 1
            self.counts[key.model, classify(text)] += 1
            self.last[key.model] = LastFailure(at, key.version, text, "index")

    def count_logged(self, model: str, version: str, text: str, at: float) -> None:
        """Count one failed load from Triton's log; no API may show it."""
        serving = self._serving_versions(model)
        if version in serving or (serving and not version):
            self.reloads[model, classify(text)] += 1
        self._count_in_log(model, version, text, at)

    def count_ensemble(self, model: str, text: str, at: float) -> None:
        """Count an ensemble that Triton could not put together from its steps, once for each text.

        Triton writes the same lines again whenever it loads or unloads one of the steps.
        """
        if self._names_known_steps(text):
            return
        counted = self._ensemble_texts.setdefault(model, deque(maxlen=_MAX_TEXTS))
        if text not in counted:
            counted.append(text)
            self._count_in_log(model, "", text, at)

    def remember_earlier(self, model: str, version: str, text: str, at: float) -> None:
        """Remember why a model failed to load before the exporter started, without counting it again."""
        if self._names_known_steps(text) or model in self.last:
            return
        self._last_named.setdefault(model, at)
        self._ensemble_texts[model] = deque([text], maxlen=_MAX_TEXTS)
        self._remember_logged(model, version, text, at)

    def _count_in_log(self, model: str, version: str, text: str, at: float) -> None:
        self.counts[model, classify(text)] += 1
        self._last_named[model] = at
        self._logged.add(model)
        self._remember_logged(model, version, text, at)

    def _remember_logged(self, model: str, version: str, text: str, at: float) -> None:
        self.changes += 1
        self.last[model] = LastFailure(at, version, text, "log")
        if not self._serving_versions(model):
            self.not_serving.add(model)

    def _serving_versions(self, model: str) -> set[str]:
        return {key.version for key, claim in self._claims.items() if key.model == model and claim.ready}

    def _names_known_steps(self, text: str) -> bool:
        """Return whether the steps that Triton does not find were all asked to load: it finds none unloaded.

        Their own failures, if there were any, are counted with other lines.
        """
        _, marker, names = text.partition(UNAVAILABLE_STEPS)
        known = {key.model for key, claim in self._claims.items() if not claim.is_unversioned}
        return bool(marker) and known.issuperset(names.split(", "))

    def _forget(self, gone: set[str]) -> None:
        """Forget models that left long ago: a server with ever new names would fill the memory."""
        if not gone:
            return
        self.changes += 1
        for model in gone:
            del self._last_named[model]
            self.last.pop(model, None)
            self._ensemble_texts.pop(model, None)
        self._logged -= gone
        self.not_serving -= gone
        for counter in (self.counts, self.reloads):
            for key in [key for key in counter if key[0] in gone]:
                del counter[key]
