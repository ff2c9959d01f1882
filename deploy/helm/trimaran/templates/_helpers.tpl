{{- define "trimaran.name" -}}
{{- printf "%s-watcher" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "trimaran.selector" -}}
app.kubernetes.io/name: trimaran
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: watcher
{{- end -}}

{{- define "trimaran.labels" -}}
{{ include "trimaran.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{/* The cluster-wide objects' name: two releases of one name in two namespaces do not share them. */}}
{{- define "trimaran.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "trimaran.name" .) -}}
{{- end -}}

{{- define "trimaran.resources" -}}
{{- if .Values.resources -}}
{{- toYaml .Values.resources -}}
{{- else -}}
{{- $memory := get (dict "small" (list "128Mi" "512Mi") "medium" (list "192Mi" "768Mi") "large" (list "384Mi" "1536Mi")) .Values.size -}}
{{- $cpu := get (dict "small" "100m" "medium" "200m" "large" "500m") .Values.size -}}
requests: {cpu: {{ $cpu }}, memory: {{ first $memory }}, ephemeral-storage: 512Mi}
limits: {memory: {{ last $memory }}, ephemeral-storage: 1Gi}
{{- end -}}
{{- end -}}
