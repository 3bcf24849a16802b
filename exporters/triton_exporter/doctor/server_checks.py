"""Check what Triton's API answers, what it serves, and how it was started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from triton_exporter.doctor.finding import Finding, TritonFacts, first_names
from triton_exporter.http import triton_paths
from triton_exporter.snapshot import ModelVersion, claims, what_to_check

TRUST = (
    "--triton-ca-file FILE trusts who signed its certificate; where it demands one of ours: --triton-cert-file "
    "and --triton-key-file. The name in the URL must be in its certificate"
)

# Which release first showed what; 2.48 is 24.07 and so on (NVIDIA's support matrix maps the numbers).
_SINCE = (
    ((2, 48), "2.48 (24.07): failures by reason"),
    ((2, 52), "2.52 (24.11): load durations, histogram of decoupled models"),
    ((2, 64), "2.64 (25.12): a model whose process died is not ready"),
    ((2, 65), "2.65 (26.01): latency histogram of every model"),
)


def check_reachable(facts: TritonFacts) -> Iterator[Finding]:
    """Report an API that does not answer, or not as Triton does."""
    failure = facts.snapshot.api_failure
    if failure == "refused" and not facts.metrics_failure:
        yield Finding(
            "problem",
            "Triton's metrics answer and its HTTP API does not",
            f"nothing listens at {facts.url}: HTTP is off, or on another port, or this Triton is ending. Without "
            "HTTP the exporter knows nothing of models, and whether the server is live.",
            "--allow-http=true (the default), and in --triton the port of --http-port",
            "Triton has no authentication: let the exporter alone reach that port (--http-address)",
        )
    elif failure == "refused":
        yield Finding(
            "problem",
            "Triton's API refuses connections",
            f"nothing listens at {facts.url}. Triton opens its port only when all start-up loads have ended, "
            "and by default one failed load ends the server."
            + (f" Its log: {facts.start_failure}" if facts.start_failure else ""),
            "--exit-on-error=false keeps the server up with the models that load; its log has what failed "
            "(tritonwatch exporter --triton-log FILE counts it)",
            "a server that starts without some of its models: watch triton_model_ready",
        )
    elif facts.is_other_server:
        yield Finding(
            "problem",
            "This is not a Triton",
            f"{facts.url}: {facts.snapshot.api_failure_text}",
            "give --triton the URL of Triton's HTTP API (port 8000 unless --http-port is another)",
        )
    elif failure:
        seen = f"{facts.url}: {facts.snapshot.api_failure_text or failure}"
        yield Finding("problem", "Triton's API does not answer", seen, _remedy(failure))
    elif not facts.snapshot.live:
        error = facts.start_failure or "its log has the error (doctor --triton-log FILE reads it)."
        yield Finding(
            "problem",
            "Triton failed to start",
            f"its process runs, is not live and serves no model: {error}",
            "repair that and restart Triton; --exit-on-error=true (the default) ends such a process, so that "
            "whoever supervises it sees the failure",
        )


def _remedy(failure: str) -> str:
    return TRUST if failure == "tls" else what_to_check(failure)


def check_restricted(facts: TritonFacts) -> Iterator[Finding]:
    """Report endpoints that Triton refuses to the exporter."""
    closed = [endpoint for endpoint, status in facts.statuses.items() if status == 403]
    if closed:
        yield Finding(
            "problem",
            "Triton restricts what the exporter reads",
            f"403 from: {', '.join(closed)}.",
            "tritonwatch exporter --triton-headers-file FILE, holding the header of --http-restricted-api",
            "the key of the group model-repository also opens load and unload; the exporter only reads",
        )


def check_namespacing(facts: TritonFacts) -> Iterator[Finding]:
    """Report statistics that --model-namespacing breaks."""
    broken = facts.statuses.get("statistics", 200) not in (200, 403) and facts.statuses.get("index") == 200
    if broken:
        yield Finding(
            "problem",
            "Statistics do not answer",
            f"{triton_paths.STATISTICS} answers {facts.statuses['statistics']} though the index works: "
            "--model-namespacing=true breaks it.",
            "--model-namespacing=false",
            "model names must be unique over all repositories",
        )


def check_readiness(facts: TritonFacts) -> Iterator[Finding]:
    """Report models that failed, and what keeps the whole server from being ready."""
    if facts.snapshot.api_failure or facts.snapshot.index is None:
        return
    current = claims(facts.snapshot)
    failed = [key for key, claim in current.items() if claim.state == "unavailable"]
    loading = [key for key, claim in current.items() if claim.state == "loading"]
    unversioned = [key for key, claim in current.items() if claim.is_unversioned]
    if failed:
        yield Finding(
            "problem",
            "Models failed to load",
            first_names(_version_names(failed)),
            "see their reasons in /state or Triton's log",
            models=_model_names(failed),
        )
    if facts.snapshot.ready is False and facts.snapshot.live:
        culprits = (
            first_names(_version_names([*failed, *loading]))
            or "none that it names: a model without a version folder does this"
        )
        yield Finding(
            "problem",
            "The whole server is not ready",
            f"with strict readiness one model is enough; culprits: {culprits}.",
            "--strict-readiness=false, with triton_model_ready for what really matters",
            "Kubernetes then sends traffic while a model loads; requests for that one fail",
        )
    if unversioned:
        yield Finding(
            "advice",
            "Models are listed without a version",
            f"{first_names(key.model for key in unversioned)}: never asked to load, or their config cannot be "
            "read, or a part failed; Triton lists all of these alike.",
            "tritonwatch exporter --expect MODEL for what should serve, and --triton-log for the reason",
            models=_model_names(unversioned),
        )


def check_log(facts: TritonFacts) -> Iterator[Finding]:
    """Advise to share the log where it is the only source of some failures."""
    if "log_file" in facts.logging and not facts.logging["log_file"]:
        yield Finding(
            "advice",
            "Failed hot reloads and broken configs are in the log only",
            "no API reports them, and this Triton logs to its standard error.",
            "--log-file=/shared/triton.log, and tritonwatch exporter --triton-log /shared/triton.log",
            "a volume shared by the two containers, and rotation of that file",
        )


def check_queues(facts: TritonFacts) -> Iterator[Finding]:
    """Report models whose queues grow without a limit."""
    endless = sorted(
        {
            key.model
            for key, config in facts.snapshot.configs.items()
            if config.dynamic_batching and config.queue.max_queue_size <= 0 and not config.priority_queues
        }
    )
    if endless:
        yield Finding(
            "advice",
            "Queues without a limit",
            f"{first_names(endless)}: under overload everybody waits, and nothing is rejected.",
            "in config.pbtxt: dynamic_batching { default_queue_policy { max_queue_size: 100 } }",
            "clients get 503 when the queue is full, which no Triton metric counts (traces do)",
            tuple(endless),
        )


def check_release(facts: TritonFacts) -> Iterator[Finding]:
    """Report what a newer Triton would show."""
    missing = [text for release, text in _SINCE if (0, 0) < facts.release < release]
    if missing:
        yield Finding(
            "advice",
            f"Triton {facts.snapshot.triton_version} is not the newest",
            "a newer one shows more.",
            "; ".join(missing),
            "an upgrade",
        )


def _version_names(versions: Iterable[ModelVersion]) -> list[str]:
    return [f"{key.model}:{key.version}" for key in versions]


def _model_names(versions: Iterable[ModelVersion]) -> tuple[str, ...]:
    return tuple(sorted({key.model for key in versions}))
