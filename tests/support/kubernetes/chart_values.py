"""Generate values that the chart's schema accepts, with strings that YAML, Go templates or CEL could misread."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

_NAMES = st.sampled_from(["triton", "123", "true", "null", "1e3", "0x1f", "no", "a.b-c"])
_NAMESPACES = st.sampled_from(["monitoring", "123", "true", "null", "1e3", "no"])
_LABELS = st.sampled_from(["kube-prometheus-stack", "123", "true", "null", "1.5", "Y", "1_000", "2026-01-01"])
_URLS = st.sampled_from(
    [
        "",
        "http://prometheus:9090",
        "https://u@host/a?b=c&d=<e>#f",
        "http://[::1]:9090/{{.Values}}",
        'http://a/"quoted"\'\\',
    ]
)
_IMAGES = st.sampled_from(
    [
        "registry.example/tritonwatch/stack:0.1.0",
        "registry:5000/a/b:1",
        "1:2",
        "x@sha256:" + "0" * 64,
        "a:1.0",
    ]
)
_WORDS = st.sampled_from(
    [
        "a",
        "b: c # d",
        '"',
        "'",
        "\\",
        "$(HOME) ${HOME} $$",
        "{{ .Values }}",
        "ü→",
        "line\nbreak",
        "<&>",
        " ",
        "null",
    ]
)
_OPTIONS = st.lists(_WORDS.map(lambda word: f"--option={word}"), max_size=3)
_RESOURCES = st.sampled_from(
    [{}, {"limits": {"memory": "1Gi", "cpu": 1}}, {"requests": {"cpu": "50m"}, "limits": {"memory": "256Mi"}}]
)
_OBJECTIVES = st.dictionaries(
    st.sampled_from(["a.yaml", "1.yml", "true.yaml"]), _WORDS, min_size=1, max_size=2
)


def _part(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Make a part of the values in which each may be absent."""
    return st.fixed_dictionaries({}, optional=values)


@st.composite
def chart_values(draw: st.DrawFn) -> dict[str, Any]:
    """Draw values of the chart. The shipped rules and dashboards are left out: they are the same for all values."""
    values: dict[str, Any] = draw(
        _part(
            operator=st.sampled_from(["prometheus", "victoria-metrics"]),
            release=_LABELS,
            monitoringNamespace=_NAMESPACES,
            prometheusUrl=_URLS,
            alertmanagerUrl=_URLS,
            imagePullSecrets=st.lists(st.fixed_dictionaries({"name": _NAMES}), max_size=2, unique_by=str),
            bridge=_part(
                enabled=st.booleans(),
                image=_IMAGES,
                existingSecret=_NAMES,
                channel=_WORDS,
                extraArgs=_OPTIONS,
                persistence=_part(
                    enabled=st.booleans(),
                    size=st.sampled_from(["1Gi", "10", "0.5Ti"]),
                    storageClass=_NAMES | st.just(""),
                    existingClaim=_NAMES | st.just(""),
                ),
                resources=_RESOURCES,
            ),
            sidecar=_part(
                enabled=st.booleans(),
                image=_IMAGES,
                triton=_URLS.filter(bool),
                tritonMetrics=_URLS,
                dcgmUrl=_URLS,
                extraArgs=_OPTIONS,
                resources=_RESOURCES,
                networkPolicy=st.booleans(),
                processes=_part(
                    enabled=st.booleans(),
                    runAsUser=st.sampled_from([0, 1000, 10001]),
                    shmVolume=_NAMES | st.just(""),
                ),
                injection=_part(
                    enabled=st.booleans(),
                    podLabels=st.dictionaries(
                        st.sampled_from(["app", "example.com/x", "1"]), _LABELS, min_size=1
                    ),
                ),
            ),
            networkPolicies=_part(enabled=st.booleans()),
        )
    )
    web = _part(
        enabled=st.just(True),
        image=_IMAGES,
        existingSecret=_NAMES,
        namespaces=st.lists(_NAMESPACES, max_size=2),
        triton=_URLS,
        extraArgs=_OPTIONS,
        resources=_RESOURCES,
    )
    values["web"] = draw(web)
    values["dashboards"] = {"enabled": False}
    values["rules"] = {"enabled": False}
    if draw(st.booleans()):
        rules: st.SearchStrategy[Any] = st.just({"groups": []})
        names = st.dictionaries(_NAMES, rules, min_size=1, max_size=2)
        values |= {"objectives": draw(_OBJECTIVES), "rules": {"files": draw(names)}}
    return values
