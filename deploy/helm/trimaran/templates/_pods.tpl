{{/* Common fields of the pods of all parts. Arguments: the root and the part. */}}

{{- define "trimaran.deployment" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- $own := eq $part "watcher" | ternary $.Values (index $.Values $part) -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "trimaran.metadata" . | nindent 2 }}
spec:
  replicas: {{ $own.replicas }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "trimaran.selector" . | nindent 6 }}
{{- end -}}

{{/* Further argument: the annotations of the part. */}}
{{- define "trimaran.podMetadata" -}}
{{- $ := index . 0 -}}
{{- $own := "" -}}
{{- if gt (len .) 2 }}{{ $own = index . 2 }}{{ end -}}
labels:
  {{- include "trimaran.labels" . | nindent 2 }}
  {{- with $.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or $own $.Values.podAnnotations }}
annotations:
  {{- with $own }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "trimaran.podSpec" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
serviceAccountName: {{ include "trimaran.name" . }}
automountServiceAccountToken: {{ or (ne $part "dashboard") $.Values.dashboard.labels }}
enableServiceLinks: false
{{- with $.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $.Values $field }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- if $.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml $.Values.topologySpreadConstraints | nindent 2 }}
{{- else if not (has $part (list "watcher" "nodes-clear")) }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "trimaran.selector" . | nindent 8 }}
{{- end }}
{{- with $.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- if ne $.Values.platform "openshift" }}
  runAsUser: 65532
  runAsGroup: 65532
  {{- if has $part (list "watcher" "extender" "dashboard") }}
  fsGroup: 65532
  {{- end }}
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "trimaran.image" -}}
{{- $ := index . 0 -}}
image: "{{ $.Values.image.repository }}:{{ $.Values.image.tag | default $.Chart.AppVersion }}"
imagePullPolicy: {{ $.Values.image.pullPolicy }}
{{- end -}}

{{- define "trimaran.closed" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Further argument: the scheme. */}}
{{- define "trimaran.probes" -}}
{{- $port := index . 1 -}}
{{- $scheme := index . 2 -}}
# Only /livez: the other probes fail when the provider is down, and a restart does not help then.
livenessProbe:
  httpGet: {path: /livez, port: {{ $port }}{{ with $scheme }}, scheme: {{ . }}{{ end }}}
  initialDelaySeconds: 10
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 3
# Removed from the Service while there are no fresh metrics to serve.
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}{{ with $scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Settings as environment variables. Further argument: the map of settings. */}}
{{- define "trimaran.settings" -}}
{{- range $name, $value := index . 1 }}
- {name: TRIMARAN_{{ $name | upper | replace "." "__" }}, value: {{ toString $value | quote }}}
{{- end }}
{{- end -}}

{{/* The token that a part sends if the watcher requires one, or reviews it. Further argument: the part's section of the
     settings. An extender reads workloads with extender.learned_use only. */}}
{{- define "trimaran.clientToken" -}}
{{- $section := index . 1 -}}
{{- $key := (index . 0).Values.clientSecret.key -}}
{{- $extenders := list (index . 0).Values.extender.settings (index . 0).Values.scheduler.settings -}}
{{- $readers := list "rebalance" "scheduler" -}}
{{- range $extenders -}}
{{- if eq (toString (get . "extender.learned_use")) "true" }}{{ $readers = append $readers "extender" }}{{ end -}}
{{- end -}}
{{- if $key }}
- {name: TRIMARAN_CLUSTER__WATCHER_TOKEN_FILE, value: {{ printf "/run/watcher/%s" $key | quote }}}
{{- else if and (has $section $readers) (include "trimaran.reviewsAccess" (index . 0)) }}
# The watcher reviews this account, which may list all pods.
- {name: TRIMARAN_CLUSTER__WATCHER_TOKEN_FILE, value: /var/run/secrets/kubernetes.io/serviceaccount/token}
{{- end }}
{{- end -}}

{{- define "trimaran.clientMount" -}}
{{- if (index . 0).Values.clientSecret.name }}
- {name: watcher-token, mountPath: /run/watcher, readOnly: true}
{{- end }}
{{- end -}}

{{- define "trimaran.clientVolume" -}}
{{- with (index . 0).Values.clientSecret.name }}
- name: watcher-token
  secret: {secretName: {{ . }}, defaultMode: 0444}
{{- end }}
{{- end -}}

{{/* Names of the services that the dashboard shows, as a YAML list: keys of .Values.dashboard. */}}
{{- define "trimaran.shownServices" -}}
[extender, rebalancer, scheduler, alerts]
{{- end -}}

{{/* The addresses of the services that the dashboard shows, by service. Argument: the root. */}}
{{- define "trimaran.shownAddresses" -}}
{{- $addresses := dict -}}
{{- range $service := include "trimaran.shownServices" . | fromYamlArray -}}
{{- with (index $.Values.dashboard $service | default dict).address }}{{ $_ := set $addresses $service . }}{{ end -}}
{{- end -}}
{{- toYaml $addresses -}}
{{- end -}}

{{/* The dashboard's credentials for these services, as files of one folder by service and purpose. Argument: the root. */}}
{{- define "trimaran.dashboardFiles" -}}
{{- $files := dict -}}
{{- range $service, $_ := include "trimaran.shownAddresses" . | fromYaml -}}
{{- $own := index $.Values.dashboard $service -}}
{{- range $name, $secret := dict "token_file" $own.tokenSecret "ca_file" $own.caSecret "client_certificate" $own.certificateSecret -}}
{{- if ($secret | default dict).name }}{{ $_ := set $files (printf "%s_%s" $service $name) $secret }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{/* The same files by the watcher's settings: one token, CA and certificate for extender, rebalancer and scheduler. */}}
{{- define "trimaran.watcherFiles" -}}
{{- $files := dict -}}
{{- $secrets := dict -}}
{{- range $name, $secret := include "trimaran.dashboardFiles" . | fromYaml -}}
{{- $setting := regexReplaceAll "^(extender|rebalancer|scheduler)_" $name "" -}}
{{- if ne (get $secrets $setting | default $secret | toJson) (toJson $secret) }}{{ fail (printf "dashboard.%s: the watcher has one for the extender, the rebalancer and the scheduler, but their secrets differ; use the same, or set dashboard.enabled and dashboard.inWatcher=false" $setting) }}{{ end -}}
{{- $_ := set $secrets $setting $secret -}}
{{- $_ := set $files $setting $name -}}
{{- end -}}
{{- toYaml $files -}}
{{- end -}}

{{- define "trimaran.dashboardMount" -}}
{{- if include "trimaran.dashboardFiles" . | fromYaml }}
- {name: services, mountPath: /run/dashboard, readOnly: true}
{{- end }}
{{- end -}}

{{- define "trimaran.dashboardVolume" -}}
{{- with include "trimaran.dashboardFiles" . | fromYaml }}
- name: services
  projected:
    defaultMode: 0440
    sources:
      {{- range $name, $secret := . }}
      - secret: {name: {{ $secret.name }}, items: [{key: {{ $secret.key }}, path: {{ $name }}}]}
      {{- end }}
{{- end }}
{{- end -}}
