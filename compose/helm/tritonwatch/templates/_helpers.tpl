{{- define "tritonwatch.labels" -}}
app.kubernetes.io/part-of: tritonwatch
{{- if eq .Values.operator "prometheus" }}
release: {{ .Values.release | quote }}
{{- end }}
{{- end }}

{{/* The addresses of what evaluates and routes: the operator's own Services unless values name others. */}}
{{- define "tritonwatch.prometheusUrl" -}}
{{- $service := eq .Values.operator "prometheus" | ternary "prometheus-operated.%s:9090" "vmsingle-main.%s:8429" -}}
{{ .Values.prometheusUrl | default (printf (print "http://" $service) .Values.monitoringNamespace) }}
{{- end }}
{{- define "tritonwatch.alertmanagerUrl" -}}
{{- $service := eq .Values.operator "prometheus" | ternary "alertmanager-operated" "vmalertmanager-main" -}}
{{ .Values.alertmanagerUrl | default (printf "http://%s.%s:9093" $service .Values.monitoringNamespace) }}
{{- end }}

{{/* The exporter beside Triton, for a pod of a parent chart: include "tritonwatch.sidecar.container" .Subcharts.tritonwatch */}}
{{- define "tritonwatch.sidecar.container" -}}
name: tritonwatch-exporter
image: {{ .Values.sidecar.image | quote }}
args:
  - exporter
  - {{ printf "--triton=%s" .Values.sidecar.triton | quote }}
  - {{ printf "--triton-metrics=%s" .Values.sidecar.tritonMetrics | quote }}
  - --gpu=auto
  {{- with .Values.sidecar.dcgmUrl }}
  - {{ printf "--dcgm-url=%s" . | quote }}
  {{- end }}
  - --listen=0.0.0.0:9401
  # The histograms go on after a restart of the container.
  - --state-file=/data/exporter.json
  {{- if .Values.objectives }}
  # Each threshold becomes a bucket bound: without it an objective of another threshold is unknown.
  - --buckets-from=/objectives
  {{- end }}
  {{- with .Values.sidecar.extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  # Separates this pod's GPUs from those of other pods on the node's dcgm-exporter.
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
ports:
  - name: tw-metrics
    containerPort: 9401
startupProbe:
  httpGet: { path: /-/healthy, port: tw-metrics }
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: { path: /-/healthy, port: tw-metrics }
  periodSeconds: 10
# No readiness probe on purpose: an exporter that cannot be scraped must never take Triton out of service.
volumeMounts:
  - { name: tritonwatch-state, mountPath: /data }
  {{- if .Values.objectives }}
  - { name: tritonwatch-objectives, mountPath: /objectives, readOnly: true }
  {{- end }}
  {{- if and .Values.sidecar.processes.enabled .Values.sidecar.processes.shmVolume }}
  - { name: {{ .Values.sidecar.processes.shmVolume | quote }}, mountPath: /dev/shm, readOnly: true }
  {{- end }}
resources:
  {{- toYaml .Values.sidecar.resources | nindent 2 }}
securityContext:
  {{- $user := .Values.sidecar.processes.enabled | ternary .Values.sidecar.processes.runAsUser 10001 | int }}
  runAsNonRoot: {{ ne $user 0 }}
  runAsUser: {{ $user }}
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  # Root may read the memory of a root with more capabilities only with this one.
  capabilities: { drop: [ALL]{{ if eq $user 0 }}, add: [SYS_PTRACE]{{ end }} }
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "tritonwatch.sidecar.volumes" -}}
- name: tritonwatch-state
  emptyDir: { sizeLimit: 64Mi }
{{- if .Values.objectives }}
- name: tritonwatch-objectives
  configMap: { name: tritonwatch-objectives }
{{- end }}
{{- end }}

{{/* A value as a CEL literal. Kubernetes allows one type in a map or list, hence dyn(). */}}
{{- define "tritonwatch.cel" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ $key | quote }}: dyn({{ include "tritonwatch.cel" (get $ $key) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
[ {{- range $i, $one := . }}{{ if $i }}, {{ end }}dyn({{ include "tritonwatch.cel" $one }}){{ end -}} ]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}
