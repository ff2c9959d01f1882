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
     All plugins that score by default in this version have ten times their weights, because kube-scheduler multiplies the
     extender's scores by 10. In shadow kube-scheduler therefore decides as without the extender. */}}
{{- define "trimaran.kubeSchedulerFile" -}}
{{- $ := index . 0 -}}
{{- $own := $.Values.scheduler -}}
{{- $filters := ne (include "trimaran.activeFilter" .) "off" -}}
{{- if $own.configuration -}}
{{- required "scheduler.kubeSchedulerConfiguration: with scheduler.configuration also set the output of `trimaran extender config` for it" $own.kubeSchedulerConfiguration -}}
{{- else -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceNamespace: {{ $.Release.Namespace }}
  resourceName: {{ include "trimaran.name" . }}
{{- if $filters }}
percentageOfNodesToScore: 100
{{- end }}
{{- $weights := dict "TaintToleration" 30 "NodeAffinity" 20 "NodeResourcesFit" 10 "VolumeBinding" 10 "PodTopologySpread" 20 "InterPodAffinity" 20 "NodeResourcesBalancedAllocation" 10 "ImageLocality" 10 }}
{{- if semverCompare ">=1.35.0-0" (include "trimaran.kubeSchedulerTag" .) }}
{{- $_ := set $weights "DynamicResources" 20 }}
{{- end }}
profiles:
- schedulerName: {{ $own.schedulerName }}
  plugins:
    score:
      enabled:
      {{- range $name, $weight := $weights }}
      - name: {{ $name }}
        weight: {{ $weight }}
      {{- end }}
extenders:
- urlPrefix: http://127.0.0.1:2021
  prioritizeVerb: prioritize
  {{- if $filters }}
  filterVerb: filter
  preemptVerb: preempt
  {{- end }}
  weight: 1
  httpTimeout: 500ms
  nodeCacheCapable: true
  ignorable: true
{{- end -}}
{{- end -}}

{{/* Version of kube-scheduler: by default the cluster's. */}}
{{- define "trimaran.kubeSchedulerTag" -}}
{{- $ := index . 0 -}}
{{- $.Values.scheduler.kubeScheduler.image.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $.Capabilities.KubeVersion.Version) -}}
{{- end -}}

{{/* The filter that kube-scheduler calls: none in shadow, because it would have to score all nodes. */}}
{{- define "trimaran.activeFilter" -}}
{{- $own := index (index . 0).Values (index . 1) -}}
{{- if eq $own.mode "active" }}{{ $own.filter }}{{ else }}off{{ end -}}
{{- end -}}

{{/* Reloaded when it changes, so that changing the mode needs no restart. */}}
{{- define "trimaran.settingsFile" -}}
{{- $ := index . 0 -}}
{{- $own := index $.Values (index . 1) -}}
[extender]
mode = {{ $own.mode | quote }}
canary = {{ $own.canary }}
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

{{/* Files that are read only at the start: a change replaces the pods. The filter in kube-scheduler's file depends on the
     mode; the extender alone has no such file. */}}
{{- define "trimaran.scoringChecksum" -}}
{{- $own := index (index . 0).Values (index . 1) -}}
{{- $filter := eq (index . 1) "extender" | ternary $own.filter (include "trimaran.activeFilter" .) -}}
{{- $read := list (include "trimaran.scoringFile" .) $filter ($own.kubeSchedulerConfiguration | default "") -}}
trimaran.io/scoring: {{ join "\n" $read | sha256sum | trunc 16 | quote }}
{{- end -}}
