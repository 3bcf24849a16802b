"""Ask for the configurations of models, and whether each is ready: some of them in each poll, in turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from triton_exporter.http.triton_paths import is_addressable, model_path
from triton_exporter.snapshot import ModelConfig, ModelVersion
from triton_exporter.triton.answers import parse_config
from triton_exporter.triton.poll_requests import PollRequests

PER_POLL = 32
"""Number of ready endpoints, and of configurations, that one poll asks for: the rest wait their turn, so that
1,000 models cost Triton no burst."""

REREAD_PER_POLL = 2
"""Number of configurations that one poll reads again."""


@dataclass
class ModelEndpoints:
    """The last answers of the endpoints of each serving model version."""

    requests: PollRequests
    configs: dict[ModelVersion, ModelConfig] = field(default_factory=dict, init=False)
    ready: dict[ModelVersion, bool] = field(default_factory=dict, init=False)
    _queue: list[ModelVersion] = field(default_factory=list, init=False)
    _config_turns: dict[ModelVersion, int] = field(default_factory=dict, init=False)  # when last asked for
    _turn: int = field(default=0, init=False)
    _configs_first: bool = field(default=True, init=False)

    def forget(self) -> None:
        """Forget all answers: they may be different after a restart."""
        self.configs.clear()
        self._config_turns.clear()
        self.ready.clear()

    def ask(self, serving: frozenset[ModelVersion]) -> None:
        """Ask the versions whose turn it is, as far as the time of the poll allows."""
        # What cannot be asked is not known: Triton's index alone has the state of such a model.
        serving = frozenset(version for version in serving if is_addressable(*version))
        for known in (self.configs, self.ready, self._config_turns):
            for gone in known.keys() - serving:
                del known[gone]
        # Requests that hang take all the remaining time, so each poll begins with the other kind.
        kinds = (self._ask_configs, self._ask_whether_ready)
        for ask in kinds if self._configs_first else reversed(kinds):
            ask(serving)
        self._configs_first = not self._configs_first

    def _ask_configs(self, serving: frozenset[ModelVersion]) -> None:
        # The version asked for longest ago comes first: a configuration that cannot be read delays no other.
        # A hot reload can change a configuration without a trace, so those that are known are read again.
        new = sorted(serving - self.configs.keys(), key=self._config_turn)
        reread = sorted(self.configs, key=self._config_turn)
        for version in [*new[:PER_POLL], *reread[:REREAD_PER_POLL]]:
            self._ask_config(version)

    def _ask_whether_ready(self, serving: frozenset[ModelVersion]) -> None:
        # New versions first, then the others in turn; those that a hung model delayed come first in the next poll.
        waiting = [version for version in self._queue if version in serving]
        waiting = sorted(serving.difference(waiting)) + waiting
        asked = 0
        for version in waiting[:PER_POLL]:
            if self.requests.is_late:
                break
            asked += 1
            if not self._ask_ready(version):
                break
        self._queue = waiting[asked:] + waiting[:asked]

    def _ask_ready(self, version: ModelVersion) -> bool:
        """Ask one ready endpoint; False when it gave no answer, so that one poll waits for one at most."""
        answer = self.requests.answer("model_ready", f"{model_path(*version)}/ready")
        if isinstance(answer, str):
            # A hung stub can block its ready endpoint: a model that does not answer is not ready.
            self.ready[version] = False
            return False
        if answer.status in (200, 400):
            self.ready[version] = answer.status == 200
        else:
            self.requests.count_failure("model_ready", "http_error")
            self.ready.pop(version, None)
        return True

    def _config_turn(self, version: ModelVersion) -> tuple[int, ModelVersion]:
        return self._config_turns.get(version, 0), version

    def _ask_config(self, version: ModelVersion) -> None:
        if self.requests.is_late:
            return
        self._turn += 1
        self._config_turns[version] = self._turn
        path = f"{model_path(*version)}/config"
        config = self.requests.parsed("config", lambda: self.requests.client.get(path), parse_config)
        if config is not None:
            self.configs[version] = config
