{{- define "herald.fullname" -}}
{{- if contains "herald" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-herald" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "herald.selector" -}}
app.kubernetes.io/name: herald
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "herald.labels" -}}
{{ include "herald.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* What can't be kept is refused. */}}
{{- define "herald.check" -}}
{{- if not (or .Values.auth.existingSecret .Values.allowAnonymous) }}
{{- fail "nobody would need to log in: name a Secret with auth.conf in auth.existingSecret, or set allowAnonymous: true" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (not (or .Values.cluster.existingSecret .Values.cluster.tls.existingSecret)) }}
{{- fail "nodes must know each other: name a Secret with user and password in cluster.existingSecret, or with certificates in cluster.tls.existingSecret" }}
{{- end }}
{{- end }}
