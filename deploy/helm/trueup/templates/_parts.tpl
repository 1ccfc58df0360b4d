{{- /* What tells one part's objects from another's. Takes the name of the part, and the chart. */ -}}
{{- define "trueup.labels" -}}
app.kubernetes.io/name: trueup
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "trueup.name" -}}
{{ .root.Release.Name }}{{ if ne .part "controller" }}-{{ .part }}{{ end }}
{{- end -}}

{{- /* The part's trueup.toml. */ -}}
{{- define "trueup.config" -}}
{{ (index .root.Values .part).config | default (.root.Files.Get (printf "%s.toml" .part)) }}
{{- end -}}

{{- define "trueup.port" -}}
{{ get (dict "controller" 9483 "ipam" 9484 "node" 9485) .part }}
{{- end -}}

{{- /* Labels and annotations of a part's pods. A change of the configuration is a rollout. */ -}}
{{- define "trueup.pod" -}}
labels:
  {{- include "trueup.labels" . | nindent 2 }}
annotations:
  checksum/config: {{ include "trueup.config" . | sha256sum }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ include "trueup.port" . | quote }}
{{- end -}}

{{- /* What each part's container has in common. */ -}}
{{- define "trueup.container" -}}
image: {{ .root.Values.image }}
ports:
  - name: metrics
    containerPort: {{ include "trueup.port" . }}
livenessProbe:
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: 5
  timeoutSeconds: 5
resources: {{ toJson (index .root.Values .part).resources }}
{{- end -}}

{{- define "trueup.variables" -}}
- { name: TRUEUP_TELEMETRY_LOG, value: json }
- { name: TRUEUP_ADMIN_METRICS_LISTEN, value: "0.0.0.0:{{ include "trueup.port" . }}" }
{{- end -}}

{{- define "trueup.config-map" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "trueup.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "trueup.labels" . | nindent 4 }}
data:
  trueup.toml: |
    {{- include "trueup.config" . | trim | nindent 4 | replace "    \n" "\n" }}
{{- end -}}

{{- /* A service account with a ClusterRole, whose rules come after it. */ -}}
{{- define "trueup.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "trueup.name" . }}
  namespace: {{ .root.Release.Namespace }}
  {{- with (index .root.Values .part).serviceAccountAnnotations }}
  annotations: {{ toJson . }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "trueup.name" . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "trueup.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "trueup.name" . }}
    namespace: {{ .root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "trueup.name" . }}
{{- end -}}
