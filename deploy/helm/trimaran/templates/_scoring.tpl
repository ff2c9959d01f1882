{{/* The files that the extender reads; each template takes the root and the part (scheduler, extender). */}}

{{/* What it scores by. */}}
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

{{/* What kube-scheduler reads in the extender's pod: what `trimaran extender config` writes of the file above. With one
     profile that is our plugins' weights, added up, for the extender, and ten times their usual weights for its own. */}}
{{- define "trimaran.kubeSchedulerFile" -}}
{{- $ := index . 0 -}}
{{- $own := $.Values.scheduler -}}
{{- if $own.configuration -}}
{{- required "scheduler.kubeSchedulerConfiguration: with scheduler.configuration give what `trimaran extender config` writes of it" $own.kubeSchedulerConfiguration -}}
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

{{/* Read anew when it changes, so that turning it on and back needs no restart. */}}
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

{{/* What is read at the start only: a change of it makes new pods. */}}
{{- define "trimaran.scoringChecksum" -}}
trimaran.io/scoring: {{ include "trimaran.scoringFile" . | sha256sum | trunc 16 | quote }}
{{- end -}}
