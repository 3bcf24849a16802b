"""Paths of Triton's HTTP API.

Reference: https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""

from __future__ import annotations

from urllib.parse import quote

SERVER = "/v2"
LIVE, READY = "/v2/health/live", "/v2/health/ready"
INDEX = "/v2/repository/index"
STATISTICS = "/v2/models/stats"
LOGGING = "/v2/logging"
TRACE_SETTING = "/v2/trace/setting"


def model_path(model: str, version: str = "") -> str:
    """Return the path under which a model, or one version of it, has its endpoints."""
    path = f"/v2/models/{quote(model, safe='')}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path
