"""Advice for when Triton's HTTP API does not answer."""

from __future__ import annotations

_CHECKS = {
    "refused": "nothing listens there: check that Triton runs, that its models have loaded (its ports open after "
    "that), that it was started with HTTP (--allow-http=true, its default), and the port in --triton",
    "unreachable": "check the network between the exporter and Triton, and the address in --triton",
    "timeout": "check whether Triton's process is stopped, hung or short of CPU, and the network",
    "dns": "the host name does not resolve: check --triton and the name server",
    "tls": "check the certificates of Triton and of the exporter (--triton-ca-file, --triton-cert-file)",
    "http_error": "put the header that is wanted there into --triton-headers-file (401, 403), or check what stands "
    "in front of Triton (5xx)",
    "bad_response": "the connection broke off, as when Triton ends, or another server answers there: check that "
    "Triton runs, and the address in --triton",
}
_OTHERWISE = "another server answers there: check the address in --triton"


def what_to_check(reason: str) -> str:
    """Explain what a reason of `Snapshot.api_failure` means, and what to check."""
    return _CHECKS.get(reason, _OTHERWISE)
