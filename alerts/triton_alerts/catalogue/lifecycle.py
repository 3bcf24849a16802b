"""Alerts about the lifecycle of models and servers: load failures, readiness, restarts."""

from __future__ import annotations

from functools import partial

from triton_alerts.alert import Alert, Lookup
from triton_alerts.broken import UNLOADED_IN_USE
from triton_exporter.catalogue import models, processes, state
from triton_slo import links, names, signals
from triton_slo.alert_settings import AlertThreshold

_LOAD_REASON = Lookup(
    f"sum by (reason) ({state.MODEL_LOAD_FAILURES}{{%q}}) > 0",
    ("instance", "model"),
    "reason",
)
_LOAD_REASON_ANYWHERE = Lookup(
    f"sum by (reason) ({state.MODEL_LOAD_FAILURES}{{%q}}) > 0", ("model",), "reason"
)
_LOAD_STEPS = (
    (
        "out_of_memory",
        "Free memory on the server or its GPU, or shared memory if the error names it; then load the model again.",
    ),
    (
        "missing_file",
        "Put the missing file in place, let Triton read it, or roll the model back; then load it again.",
    ),
    (
        "bad_config",
        "Fix the line of config.pbtxt that Triton's error names, or roll it back; then load the model again.",
    ),
    ("missing_backend", "Install the backend that config.pbtxt names, or correct its name."),
    (
        "invalid_model",
        "Build the file again for this server's TensorRT, ONNX Runtime or PyTorch, or copy it again; then load it.",
    ),
    (
        "python_error",
        "Read the traceback in Triton's error message; fix model.py or its imports, or roll the model back.",
    ),
    (
        "dependency_failed",
        "Fix the step of the ensemble that failed to load; the ensemble loads when all its steps are loaded.",
    ),
)

_NOT_SERVED = "30s"
"""How long nothing serves a model before it is a page: with scrape, evaluation and group_wait about a minute. A restart
that is shorter calls nobody; a model that is served while it is loaded again is not concerned."""
_AFTER_READY = "2m"
"""How long an alert that nothing serves a model fires on, and those that it inhibits: longer ones would be sent after
the repair."""

_model_alert = partial(Alert, component="lifecycle")

MODELS = (
    _model_alert(
        name="TritonModelLoadFailed",
        # The counter sees attempts, also those a retry hides; the state sees a failure that was there
        # before the exporter, whose counter was born too late to increase.
        expr=f"""\
sum without (reason) (increase({state.MODEL_LOAD_FAILURES}[15m])) > 0
or
max without (version, state) ({state.MODEL_STATE}{{state="unavailable"}}) == 1""",
        severity="warning",
        labels=("instance", "model"),
        # It names the reason of TritonModelDownEverywhere: they begin together, and are one message.
        for_=_NOT_SERVED,
        keep_firing_for="5m",
        summary="Model {{ $labels.model }} failed to load on {{ $labels.instance }}",
        description="A load failed within the last [15m]. Requests for this model fail, unless an earlier version "
        "of it is ready.",
        action="Read the reason in the exporter's /state or in Triton's log and fix it, or roll the "
        "model back; then load the model again.",
        cause_from=_LOAD_REASON,
        steps=_LOAD_STEPS,
        silence="model, during a planned rollout of that model",
    ),
    _model_alert(
        name="TritonModelNotReadyProlonged",
        # The exporter's timestamp spans the retries (UNAVAILABLE, LOADING, UNAVAILABLE) that would reset a
        # `for` on the state for ever. An exporter that was restarted dates an episode from its first poll:
        # of all dates since the model was last ready the earliest counts.
        expr=f"""\
time() - min_over_time({state.MODEL_NOT_READY_SINCE}[$threshold]) > $threshold
unless max_over_time({state.MODEL_READY}[$threshold]) == 1
and {state.MODEL_NOT_READY_SINCE}""",
        threshold=AlertThreshold(
            600.0,
            "age",
            "time that a model has not been ready",
            "Most models load within a minute or two, and large ones from a network store within ten.",
        ),
        severity="warning",
        labels=("instance", "model", "version"),
        keep_firing_for=_AFTER_READY,
        # A model that Triton does not list at all has no version.
        # In no tense, and without the time until now: it fires on for some time after the repair.
        summary="Model {{ $labels.model }}{{ with $labels.version }} version {{ . }}{{ end }} not ready for over $threshold "
        "on {{ $labels.instance }}",
        description="The server should serve the model. Requests for it fail there.",
        action="Check the state of the model and its reason, in the exporter's /state or in Triton's "
        "repository index.",
        cause_from=_LOAD_REASON,
        steps=_LOAD_STEPS,
        silence="instance and model, during planned work on that model",
    ),
    _model_alert(
        name="TritonModelDownEverywhere",
        # Only live servers are counted: TritonMostServersDown covers all models of a server that is down. But where
        # it fires already, it is not resolved because the server dies, too. A first load may take long: ten minutes,
        # `for` included. A server that had the model and whose exporter is silent may serve it: TritonModelExporterDown.
        expr=f"""\
max by (cluster, model) ({state.MODEL_EXPECTED}) == 1
and on (cluster, model) (
  {state.MODEL_EXPECTED} == 1 and on (cluster, job, instance) {state.SERVER_LIVE} == 1
  or
  {names.ALERTS}{{alertname="TritonModelDownEverywhere", alertstate="firing"}}
)
and on (cluster, model) (
  max by (cluster, model) (max_over_time({state.MODEL_READY}[1d])) == 1
  or
  max by (cluster, model) (time() - min_over_time({state.MODEL_NOT_READY_SINCE}[9m30s])) > 9m30s
)
unless on (cluster, model) max by (cluster, model) ({state.MODEL_READY}) == 1
unless on (cluster, model) ({signals.MAYBE_READY})""",
        severity="critical",
        labels=("model",),
        for_=_NOT_SERVED,
        keep_firing_for=_AFTER_READY,
        summary="No server serves model {{ $labels.model }}",
        description="Every request for this model fails: it is ready on no server that should serve it.",
        action="Load it again if it was unloaded; else roll back its last change, then look for the cause.",
        cause_from=_LOAD_REASON_ANYWHERE,
        steps=_LOAD_STEPS,
        silence="model, while it is replaced on purpose",
    ),
    _model_alert(
        name="TritonModelVersionLost",
        # Readiness is of models: one version that serves is enough for it. Clients that name the other one fail.
        expr=f"""\
count by (cluster, model, version) (
  {state.MODEL_STATE}{{state=~"unavailable|missing"}} == 1
  and on (cluster, instance, model, version) max_over_time({state.MODEL_READY}[1h]) == 1
)
and on (cluster, model) {state.MODEL_READY} == 1
unless on (cluster, model, version) {state.MODEL_READY} == 1""",
        severity="critical",
        labels=("model", "version"),
        for_="1m",
        keep_firing_for="2m",
        summary="No server serves version {{ $labels.version }} of model {{ $labels.model }} any more",
        description="The version was ready within the last [1h]. Requests that name it fail; another version of the model "
        "still serves.",
        action="Read the reason in the exporter's /state or in Triton's log, and fix it or roll back the change.",
        cause_from=_LOAD_REASON_ANYWHERE,
        steps=_LOAD_STEPS,
        silence="model, while its versions are replaced on purpose",
    ),
    _model_alert(
        name="TritonModelReplicasLow",
        # Expected by each exporter that answers; one replica of several is TritonModelNotReadyProlonged's.
        expr=f"""\
count by (cluster, model) (max by (cluster, job, instance, model) ({state.MODEL_READY}) == 1)
/ on (cluster, model)
(count by (cluster, model) (max by (cluster, job, instance, model) ({state.MODEL_EXPECTED}) == 1) > 1)
<= 0.5""",
        severity="warning",
        labels=("model",),
        for_="5m",
        keep_firing_for="5m",
        summary="Model {{ $labels.model }} is ready on only {{ $value | humanizePercentage }} of its servers",
        description="These servers receive all of its traffic; one more failure may overload them.",
        action="Compare the servers on which the model is ready with the other servers: what was rolled "
        "out, and where?",
        cause_from=_LOAD_REASON_ANYWHERE,
        steps=_LOAD_STEPS,
        silence="model, during a planned rollout of that model",
    ),
    _model_alert(
        name="TritonExpectedModelMissing",
        expr=f'max without (state) ({state.MODEL_STATE}{{state="missing"}}) == 1',
        severity="warning",
        labels=("instance", "model", "version"),
        for_="5m",
        keep_firing_for=_AFTER_READY,
        summary="Model {{ $labels.model }} should be on {{ $labels.instance }}, but Triton does not have it",
        description="Triton does not list the model, or lists only its name: the model's folder or version folder is missing, its configuration "
        "does not parse, its backend is unknown, or a step of the ensemble failed. Triton's health checks "
        "still succeed.",
        action='Search Triton\'s log for the model\'s name and "failed to load" or "Poll failed".',
        silence="model, until its files are in place",
    ),
    _model_alert(
        name="TritonModelStuckLoading",
        expr=f'max without (state) ({state.MODEL_STATE}{{state="loading"}}) == 1',
        severity="warning",
        labels=("instance", "model", "version"),
        for_="30m",
        keep_firing_for=_AFTER_READY,
        summary="Model {{ $labels.model }} version {{ $labels.version }} has been loading for $for on "
        "{{ $labels.instance }}",
        description="It is a large download, an engine that is being built, or a load that hangs. Until the load ends, "
        "the whole server reports not ready.",
        action="Check whether the load makes progress: network, disk and GPU of the server.",
        silence="instance and model, while an engine is built",
    ),
    _model_alert(
        name="TritonModelFlapping",
        expr=f"changes({state.MODEL_READY}[30m]) > $threshold",
        threshold=AlertThreshold(
            4,
            "number",
            "changes of readiness within 30 minutes",
            "A reload is two changes, and a rollout that is corrected once is four.",
        ),
        severity="warning",
        labels=("instance", "model", "version"),
        keep_firing_for="10m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} changed between ready and not ready "
        "{{ $value }} times within [30m] on {{ $labels.instance }}",
        description="While the model is not ready, its requests fail.",
        action="Find out why the model stops being ready: its Python stub process dies, somebody reloads "
        "it, or the model repository changes.",
        cause_from=_LOAD_REASON,
        silence="model, while it is being edited under poll mode",
    ),
    _model_alert(
        name="TritonModelUnloadedInUse",
        expr=UNLOADED_IN_USE,
        severity="warning",
        labels=("instance", "model"),
        for_="2m",
        keep_firing_for="5m",
        summary="Model {{ $labels.model }} was unloaded on {{ $labels.instance }} while it was in use",
        description="The model answered requests within the last [1h]; no version of it is ready there now. Triton does "
        "not count an unloaded model as a failure, so the server's readiness check still succeeds.",
        action="Ask who called unload, and load the model again if it is still needed.",
        silence="model, while it is retired",
    ),
    _model_alert(
        name="TritonModelVersionSkew",
        # Servers that serve another version of the model, but not this one.
        expr=f"""\
count by (model, version) ({state.MODEL_READY} == 1)
< on (model) group_left
count by (model) (count by (model, instance) ({state.MODEL_READY} == 1))""",
        severity="info",
        labels=("model", "version"),
        for_="2h",
        keep_firing_for="10m",
        summary="Version {{ $labels.version }} of model {{ $labels.model }} serves on only {{ $value }} of "
        "the model's servers",
        description="The servers have served different versions of the model for $for. A rollout may have stopped "
        "half-way, or a reload failed and the old version kept serving.",
        action='Compare the repositories of the servers, and search their logs for "failed to load".',
        silence="model, during a staged rollout",
    ),
)

LOST_SERVER = _model_alert(
    name="TritonModelLostServer",
    # The tickets of its readiness objective look back six hours, and fire for one more: also after the exporter is
    # gone, or the pod was replaced. So it is what was last recorded of the server that counts.
    expr=f"""\
group by (cluster, model) (
  last_over_time({names.MODEL_EXPECTED_COPY}[7h]) == 1
  and on (cluster, instance) min_over_time({state.SERVER_LIVE}[7h]) == 0
)
unless on (cluster, model) (
  {state.MODEL_NOT_READY_SINCE} and on (cluster, job, instance) {state.SERVER_LIVE} == 1
)""",
    severity="info",
    labels=("model",),
    # A scrape that fails must not let them through.
    keep_firing_for="2m",
    summary="Model {{ $labels.model }} lost a server, and is ready on all that are live",
    description="While this fires, the alerts about the readiness of the model are not sent: the alert about the server "
    "names its models.",
    action="There is nothing to do: it is sent to nobody.",
    silence="never",
)

_server_alert = partial(Alert, component="lifecycle", dashboard=links.SERVER, labels=("instance",))

# Prometheus evaluates and sends in this order: what is held back ends before what holds it back, not a moment later.
SERVERS = (
    _server_alert(
        name="TritonServerDown",
        expr=f"""\
{state.SERVER_LIVE} == 0
and on (instance) {state.UP} == 0
and on (instance) max_over_time({state.SERVER_LIVE}[1d]) == 1""",
        severity="warning",
        for_="1m",
        keep_firing_for="1m",
        summary="Triton server {{ $labels.instance }} is down",
        description="The server answers neither requests nor on its metrics port: its process has ended, or it is loading "
        "models after a restart.",
        action="Check whether the Triton process runs, and read the end of its previous log.",
        silence="instance, during a planned restart",
    ),
    _server_alert(
        name="TritonServerNotStarting",
        expr=f"max_over_time({state.SERVER_LIVE}[1d]) == 0 and on (instance) {state.UP} == 0",
        severity="warning",
        for_="20m",
        keep_firing_for="2m",
        summary="Triton server {{ $labels.instance }} does not start",
        description="The server has never answered, for longer than start-up should take. By default, one model that fails "
        "to load at start-up terminates the whole server, at every restart.",
        action="Read the log of the previous start: near its end, it names the model that failed.",
        silence="instance, while a large model is loaded for the first time",
    ),
    _server_alert(
        name="TritonServerNotLive",
        # Absent where Triton's HTTP API has never answered.
        expr=f"{state.UP} == 1 unless on (instance) {state.SERVER_LIVE} == 1",
        severity="warning",
        for_="2m",
        keep_firing_for="1m",
        summary="Triton server {{ $labels.instance }} answers no requests, although its process runs",
        description="Its metrics port answers, its API does not: its start failed, it is draining, stuck in shutdown, or its HTTP port is off or closed "
        "to the exporter.",
        action="Read the phase in the exporter's /state, and the end of Triton's log: if the shutdown hangs, kill "
        "the process; if this Triton has no HTTP API, start the exporter without --triton.",
        silence="instance, during a planned shutdown",
    ),
    _server_alert(
        name="TritonMostServersDown",
        # A model that is not ready on a live server, too, has alerts of its own.
        expr=f"""\
count by (cluster, job, instance) (
  {state.MODEL_EXPECTED} == 1
  and on (cluster, job, instance) (
    {state.SERVER_LIVE} == 0
    and (max_over_time({state.SERVER_LIVE}[1d]) == 1 or {state.SERVER_LIVE} offset 19m30s == 0)
  )
  unless on (cluster, model) (
    2 * sum by (cluster, model) (max by (cluster, job, instance, model) ({state.MODEL_READY}))
    >= count by (cluster, model) ({state.MODEL_EXPECTED} == 1)
  )
  unless on (cluster, model) (
    {state.MODEL_NOT_READY_SINCE} and on (cluster, job, instance) {state.SERVER_LIVE} == 1
  )
)""",
        severity="critical",
        for_=_NOT_SERVED,
        keep_firing_for="1m",
        summary="Triton server {{ $labels.instance }} is down, as are most servers of {{ $value }} of its models",
        description="More than half of the servers that should serve these models do not; of a model with one server, "
        "this is the one.",
        action="Check whether the Triton process runs, and read the end of its previous log.",
        silence="instance, during a planned restart",
    ),
    _server_alert(
        name="TritonAllServersDown",
        expr=f"""\
max by (cluster, job) ({state.SERVER_LIVE}) == 0
and on (cluster, job) (
  max by (cluster, job) (max_over_time({state.SERVER_LIVE}[1d])) == 1
  or
  max by (cluster, job) ({state.SERVER_LIVE} offset 19m30s) == 0
)""",
        severity="critical",
        labels=("job",),
        for_=_NOT_SERVED,
        keep_firing_for="1m",
        summary="No Triton server is live",
        description="No model is served: the last server stopped answering, or none has started within twenty minutes.",
        action="Check whether the Triton processes run, and read the end of the previous log of one; if all ended "
        "after one change, undo that.",
        silence="never",
    ),
    _server_alert(
        name="TritonServerRestarting",
        expr=f"changes({state.SERVER_LIVE}[30m]) > $threshold",
        threshold=AlertThreshold(
            4,
            "number",
            "changes between live and not live within 30 minutes",
            "A restart is two changes, and one that is repeated on purpose is four.",
        ),
        severity="warning",
        keep_firing_for="10m",
        summary="Triton server {{ $labels.instance }} restarted repeatedly: it went down or came back {{ $value }} times "
        "within [30m]",
        description="Every restart drops requests and loads all models again.",
        action="Read the end of the previous log and the exit code: out of memory, a signal, a model that "
        "fails.",
        silence="instance, while it is restarted on purpose",
    ),
    _server_alert(
        name="TritonServerNotReady",
        expr=f"{state.SERVER_READY} == 0 and on (instance) {state.SERVER_LIVE} == 1",
        severity="warning",
        for_="10m",
        keep_firing_for="5m",
        summary="Triton server {{ $labels.instance }} is live but not ready",
        description="With strict readiness, the default, one failed or loading model is enough. Kubernetes or a load balancer "
        "then removes the whole server from service, including its healthy models.",
        action="Find the model that is not ready, and fix it or unload it.",
        silence="instance, while large models load",
    ),
    _server_alert(
        name="TritonMetricsUnreachable",
        expr=f"{state.UP} == 0 and on (instance) {state.SERVER_LIVE} == 1",
        severity="warning",
        for_="5m",
        keep_firing_for="5m",
        summary="Triton server {{ $labels.instance }} is live, but its metrics cannot be read",
        description="Its metrics port does not answer the exporter. Latency, queue and error objectives of this server have "
        "no data.",
        action="Check --allow-metrics and --metrics-port of Triton and the exporter's --triton-metrics.",
        silence="instance",
    ),
)

PROCESSES = (
    _model_alert(
        name="TritonModelProcessDied",
        # The missing ones also show a death before the exporter started; the counter also one that Triton repaired.
        expr=f"""\
sum without (kind, gpu) ({models.INSTANCES}) - {processes.MODEL_PROCESSES} > 0
or
increase({processes.MODEL_PROCESS_DEATHS}[15m]) > 0""",
        severity="warning",
        labels=("instance", "model", "version"),
        for_="1m",
        keep_firing_for="5m",
        summary="A process of model {{ $labels.model }} version {{ $labels.version }} has died on "
        "{{ $labels.instance }}",
        description="It ended while Triton needed it. Triton before 24.06 starts it again; later ones do not, and "
        "a part of the requests, all with one instance, fail until the model is reloaded. Triton still reports the "
        "model ready, before 25.12.",
        action="Find out what killed the process (out of memory, a crash in a library), then reload the model.",
        silence="instance and model, while its processes are killed on purpose",
    ),
    _model_alert(
        name="TritonModelReloadLeaks",
        # Two changes are three reloads. Of any part: what leaks can be the same to the byte each time.
        expr=f"""\
min_over_time({processes.RELOAD_GROWTH}[1d]) > $threshold
and ignoring (part) max without (part) (changes({processes.RELOAD_GROWTH}[1d])) >= 2""",
        threshold=AlertThreshold(
            20_000_000,
            "number",
            "bytes that every reload of a day added, with at least three",
            "Caches and allocators of a healthy model vary by a few megabytes between two loads.",
        ),
        severity="warning",
        labels=("instance", "model", "part"),
        keep_firing_for="30m",
        summary="Memory grew by {{ $value | humanize1024 }}B at each reload of model {{ $labels.model }} on "
        "{{ $labels.instance }}",
        description="At least three reloads within the last [1d] did not give it back. What grows is "
        "{{ $labels.part }} (processes: those of the model; server: Triton's own process, and shm: /dev/shm, are of "
        "all models: one that is reloaded at the same time can be the cause). When no memory is left, the kernel "
        "kills a process, or the whole server.",
        action="Stop automatic reloads of the model, and restart Triton before the memory is used up.",
        silence="instance and model, until a corrected version of it is deployed",
    ),
    _server_alert(
        name="TritonShmNearFull",
        # A straight line, as in GpuMemoryGrowth: a load of models is a step.
        expr=f"""\
({processes.SHM_SIZE} - {processes.SHM_USED}) / (deriv({processes.SHM_USED}[1h]) > 0) < $threshold
and 1h * deriv({processes.SHM_USED}[1h]) > 3 * stddev_over_time({processes.SHM_USED}[1h])
and {processes.SHM_USED} / {processes.SHM_SIZE} > 0.5""",
        threshold=AlertThreshold(
            4 * 3600.0,
            "age",
            "time until /dev/shm is full, at the growth of the last hour",
            "Time to restart the server in a quiet hour, before models fail.",
            below=True,
        ),
        severity="warning",
        for_="15m",
        keep_firing_for="15m",
        summary="Shared memory (/dev/shm) of {{ $labels.instance }} will be full in "
        '{{ $value | printf "%.0f" | humanizeDuration }}',
        description="Its use grows steadily, and more than half of it is in use. When it is full, no Python model loads, and requests to those that are loaded fail or end "
        "their processes.",
        action="See which model's shared memory grows, or whether memory is left behind; restart Triton to free it.",
        silence="instance, while models are loaded one after the other",
    ),
)

ALERTS = (*MODELS, LOST_SERVER, *SERVERS, *PROCESSES)
