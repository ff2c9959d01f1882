{{/* A policy that limits what a part's account may change, or with others every other account, and its binding. */}}
{{- define "trimaran.guard" }}
{{- $ := index .part 0 }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    {{- include "trimaran.labels" .part | nindent 4 }}
spec:
  failurePolicy: {{ if .others }}Ignore # no pod of others waits for this policy{{ else }}Fail # of requests by this account; no other request gets as far as the rules{{ end }}
  matchConstraints:
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        operations: [{{ if .others }}CREATE, UPDATE{{ else }}{{ eq .resource "pods/eviction" | ternary "CREATE" "UPDATE" }}{{ end }}]
        resources: [{{ .resource }}]
  matchConditions:
    - name: {{ if .others }}others{{ else }}account{{ end }}
      expression: request.userInfo.username {{ if .others }}!={{ else }}=={{ end }} 'system:serviceaccount:{{ $.Release.Namespace }}:{{ include "trimaran.name" .part }}'
  validations:
    {{- .rules | nindent 4 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "trimaran.labels" .part | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end -}}

{{- define "trimaran.guardAnnotations" -}}
- expression: >-
    object.metadata.?annotations.orValue({}).all(k, k.startsWith('{{ . }}') ||
    oldObject.metadata.?annotations[?k] == object.metadata.?annotations[?k])
    && oldObject.metadata.?annotations.orValue({}).all(k, k.startsWith('{{ . }}') ||
    object.metadata.?annotations[?k].hasValue())
  message: the account may change only annotations that begin with {{ . }}
{{- end -}}

{{- define "trimaran.guardNode" -}}
- expression: >-
    object.spec.?unschedulable == oldObject.spec.?unschedulable &&
    object.spec.?providerID == oldObject.spec.?providerID &&
    object.spec.?podCIDRs == oldObject.spec.?podCIDRs &&
    object.metadata.?labels == oldObject.metadata.?labels &&
    object.metadata.?finalizers == oldObject.metadata.?finalizers &&
    object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
  message: the account may change nothing else of a node
{{- end -}}
