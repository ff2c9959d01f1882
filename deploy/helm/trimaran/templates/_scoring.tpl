{{/* The extender's files. Arguments of each template: the root and the part (scheduler, extender). */}}

{{/* The configuration of plugins. */}}
{{- define "trimaran.scoringFile" -}}
{{- $ := index . 0 -}}
{{- $own := index $.Values (index . 1) -}}
{{- if $own.configuration -}}
{{- $own.configuration -}}
{{- else -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
{{- if eq (index . 1) "scheduler" }}
leaderElection: {leaderElect: true, resourceNamespace: {{ $.Release.Namespace }}, resourceName: {{ include "trimaran.name" . }}}
{{- end }}
profiles:
  - schedulerName: {{ $own.schedulerName }}
    plugins:
      score:
        enabled:
          {{- range $own.plugins }}
          - {name: {{ .name }}, weight: {{ .weight }}}
          {{- end }}
    {{- $with := list }}
    {{- range $own.plugins }}{{ if .args }}{{ $with = append $with . }}{{ end }}{{ end }}
    {{- with $with }}
    pluginConfig:
      {{- range . }}
      - name: {{ .name }}
        args: {{ toJson .args }}
      {{- end }}
    {{- end }}
{{- end -}}
{{- end -}}

{{/* The configuration of kube-scheduler in the extender's pod: the output of `trimaran extender config` for the file above.
     With one profile, the extender's weight is the sum of our plugins' weights, and kube-scheduler's own plugins have ten
     times their usual weights. */}}
{{- define "trimaran.kubeSchedulerFile" -}}
{{- $ := index . 0 -}}
{{- $own := $.Values.scheduler -}}
{{- if $own.configuration -}}
{{- required "scheduler.kubeSchedulerConfiguration: with scheduler.configuration also set the output of `trimaran extender config` for it" $own.kubeSchedulerConfiguration -}}
{{- else -}}
{{- $weight := 0 -}}
{{- range $own.plugins }}{{ $weight = add $weight .weight }}{{ end -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ $.Release.Namespace }}
  resourceName: {{ include "trimaran.name" . }}
{{- if ne $own.filter "off" }}
percentageOfNodesToScore: 100
{{- end }}
profiles:
- schedulerName: {{ $own.schedulerName }}
  plugins:
    score:
      disabled:
      - name: '*'
      enabled:
      {{- range $name, $times := dict "TaintToleration" 30 "NodeAffinity" 20 "PodTopologySpread" 20 "InterPodAffinity" 20 "ImageLocality" 10 "NodeResourcesFit" 1 "NodeResourcesBalancedAllocation" 1 }}
      - name: {{ $name }}
        weight: {{ $times }}
      {{- end }}
extenders:
- urlPrefix: http://127.0.0.1:2021
  prioritizeVerb: prioritize
  {{- if ne $own.filter "off" }}
  filterVerb: filter
  preemptVerb: preempt
  {{- end }}
  weight: {{ $weight }}
  httpTimeout: 500ms
  nodeCacheCapable: true
  ignorable: true
{{- end -}}
{{- end -}}

{{/* Reloaded when it changes, so that changing the mode needs no restart. */}}
{{- define "trimaran.settingsFile" -}}
{{- $ := index . 0 -}}
{{- $own := index $.Values (index . 1) -}}
[extender]
mode = {{ $own.mode | quote }}
canary = {{ $own.canary }}
events_namespace = {{ $.Release.Namespace | quote }}
{{- if ne $own.filter "off" }}
filter = {{ $own.filter | quote }}
{{- end }}
{{- if eq (index . 1) "extender" }}
[server]
certificate = "/etc/trimaran-tls/tls.crt"
key = "/etc/trimaran-tls/tls.key"
client_ca_file = "/etc/trimaran-tls/ca.crt"
metrics_open = true
{{- end }}
{{- end -}}

{{/* Files that are read only at the start: a change replaces the pods. */}}
{{- define "trimaran.scoringChecksum" -}}
{{- $own := index (index . 0).Values (index . 1) -}}
{{- $read := list (include "trimaran.scoringFile" .) $own.filter ($own.kubeSchedulerConfiguration | default "") -}}
trimaran.io/scoring: {{ join "\n" $read | sha256sum | trunc 16 | quote }}
{{- end -}}
