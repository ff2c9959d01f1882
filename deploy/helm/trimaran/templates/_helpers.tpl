{{/* The argument of each template is a list: the root and the part (watcher, scheduler, extender, nodes, rebalancer, standalone, dashboard). */}}

{{- define "trimaran.name" -}}
{{- printf "%s-%s" (index . 0).Release.Name (index . 1) -}}
{{- end -}}

{{- define "trimaran.selector" -}}
app.kubernetes.io/name: trimaran
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "trimaran.labels" -}}
{{- $ := index . 0 -}}
{{ include "trimaran.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version | quote }}
{{- end -}}

{{- define "trimaran.metadata" -}}
name: {{ include "trimaran.name" . }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "trimaran.labels" . | nindent 2 }}
{{- end -}}

{{- define "trimaran.watcherUrl" -}}
http://{{ (index . 0).Release.Name }}.{{ (index . 0).Release.Namespace }}:2020
{{- end -}}

{{/* Requests and limits of a part's container, by the number of nodes; docs/sizing.md has the measurements. */}}
{{- define "trimaran.resources" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- $own := $.Values.resources -}}
{{- if ne $part "watcher" }}{{ $own = (index $.Values $part).resources }}{{ end -}}
{{- if $own -}}
{{- toYaml $own -}}
{{- else -}}
{{- $preset := index ($.Files.Get "files/sizes.yaml" | fromYaml) $part $.Values.size -}}
{{- toYaml $preset -}}
{{- end -}}
{{- end -}}
