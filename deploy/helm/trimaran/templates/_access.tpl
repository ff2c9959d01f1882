{{/* A service account; a role for the cluster and one for the release's namespace, each with its binding. Arguments of the
     roles: the root, the part, and their rules. */}}

{{- define "trimaran.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "trimaran.metadata" . | nindent 2 }}
  {{- with (index . 0).Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false # the pod mounts it instead
{{- end -}}

{{- define "trimaran.subjects" -}}
subjects:
  - {kind: ServiceAccount, name: {{ include "trimaran.name" . }}, namespace: {{ (index . 0).Release.Namespace }}}
{{- end -}}

{{/* Name of cluster-wide objects; it differs between releases of the same name in different namespaces. */}}
{{- define "trimaran.clusterName" -}}
{{- printf "%s-%s" (index . 0).Release.Namespace (include "trimaran.name" .) -}}
{{- end -}}

{{- define "trimaran.clusterRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "trimaran.clusterName" . }}
  labels:
    {{- include "trimaran.labels" . | nindent 4 }}
rules:
  {{- index . 2 | nindent 2 }}
---
{{ include "trimaran.clusterRoleBinding" (list (index . 0) (index . 1) (include "trimaran.clusterName" .) "") }}
{{- end -}}

{{/* Further arguments: the role's name, and a suffix for the binding's name. */}}
{{- define "trimaran.clusterRoleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "trimaran.clusterName" . }}{{ index . 3 }}
  labels:
    {{- include "trimaran.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ index . 2 | quote }}}
{{ include "trimaran.subjects" . }}
{{- end -}}

{{- define "trimaran.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "trimaran.metadata" . | nindent 2 }}
rules:
  {{- index . 2 | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "trimaran.metadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "trimaran.name" . }}}
{{ include "trimaran.subjects" . }}
{{- end -}}

{{/* Reviews of the access of readers who request what is known of pods. */}}
{{- define "trimaran.reviewRules" -}}
# Reviews the access of readers who request what is known of pods.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end -}}

{{/* "true" if the watcher reviews the access to workloads, as it does where readers need no token. Argument: the root. */}}
{{- define "trimaran.reviewsAccess" -}}
{{- $default := ternary "auto" "review" (not (not .Values.readersSecret.name)) -}}
{{- $measures := ne (toString (get .Values.settings "workloads.enabled")) "false" -}}
{{- if and $measures (eq (get .Values.settings "workloads.access" | default $default) "review") }}true{{ end -}}
{{- end -}}

{{/* The record of a field trial. */}}
{{- define "trimaran.trialRule" -}}
- apiGroups: [""]
  resources: [configmaps] # trimaran-trial-NAME
  verbs: [get, create, update]
{{- end -}}

{{/* A write of the extender on nodes, needed with a fail-closed filter. */}}
{{- define "trimaran.requeueRule" -}}
# Requeues the pods that the filter rejected.
- apiGroups: [""]
  resources: [nodes]
  verbs: [patch]
{{- end -}}

{{/* The pods of all namespaces, for the dashboard's Pod page. */}}
{{- define "trimaran.podPageRule" -}}
# Reads pods for the Pod page.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
{{- end -}}
