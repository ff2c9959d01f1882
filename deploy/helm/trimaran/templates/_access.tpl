{{/* An account; a role of the whole cluster, and one of the release's namespace, each with its binding. The roles take the
     root, the part, and their rules. */}}

{{- define "trimaran.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "trimaran.metadata" . | nindent 2 }}
  {{- with (index . 0).Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false # the pod asks for it
{{- end -}}

{{- define "trimaran.subjects" -}}
subjects:
  - {kind: ServiceAccount, name: {{ include "trimaran.name" . }}, namespace: {{ (index . 0).Release.Namespace }}}
{{- end -}}

{{/* The cluster-wide objects' name: two releases of one name in two namespaces do not share them. */}}
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

{{/* Takes the role's name too, and what is appended to the binding's. */}}
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

{{/* The one write of the extender, and only where it lets pods wait. */}}
{{- define "trimaran.wakingRule" -}}
# To wake pods that the filter lets wait.
- apiGroups: [""]
  resources: [nodes]
  verbs: [patch]
{{- end -}}
