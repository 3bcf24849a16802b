"""Everything about distributions that one exporter runs, as its settings say."""

from __future__ import annotations

from triton_exporter.app.settings import Settings
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.http.certificates import Renewed
from triton_exporter.http.client import Client, Limits
from triton_exporter.tracing.receiver import TraceReceiver
from triton_exporter.tracing.trace import Mailbox
from triton_exporter.tracing.trace_file import TraceFiles
from triton_exporter.tracing.trace_rate import TraceRate


def parts(settings: Settings) -> tuple[object, ...]:
    """Build the histograms and, where asked for, what receives traces. Raises OSError: a port is taken."""
    if settings.otlp_listen is None and settings.trace_file is None:
        return (Distributions(settings.buckets),)
    mailbox = Mailbox()
    found: list[object] = [Distributions(settings.buckets, mailbox)]
    if settings.otlp_listen is not None:
        found.append(TraceReceiver(*settings.otlp_listen, mailbox))
    if settings.trace_file is not None:
        found.append(TraceFiles(settings.trace_file, mailbox))
    limits = Limits(settings.timeout_seconds, 1024 * 1024)
    tls = Renewed(settings.certificates)
    client = Client(settings.triton_url, limits, settings.triton_headers, tls)
    return (*found, TraceRate(client, mailbox))
