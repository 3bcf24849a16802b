"""Paths of Triton's HTTP API.

Reference: https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""

from __future__ import annotations

import re

SERVER = "/v2"
LIVE, READY = "/v2/health/live", "/v2/health/ready"
INDEX = "/v2/repository/index"
STATISTICS = "/v2/models/stats"
LOGGING = "/v2/logging"
TRACE_SETTING = "/v2/trace/setting"


_ADDRESSABLE = re.compile("[!-.0->@-~]+")
"""Printable ASCII without the space, `/` and `?`, which end a name in a request line."""


def model_path(model: str, version: str = "") -> str:
    """Return the path under which a model, or one version of it, has its endpoints.

    Triton decodes no percent escapes: a name is sent as it is.
    """
    path = f"/v2/models/{model}"
    return f"{path}/versions/{version}" if version else path


def is_addressable(model: str, version: str) -> bool:
    """Return whether a path can have these names; Triton also loads models with names that none can have."""
    return _ADDRESSABLE.fullmatch(model + version) is not None
