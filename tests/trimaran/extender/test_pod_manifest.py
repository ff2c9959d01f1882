"""Manifest of a recorded pod: all that scores read, and nothing else."""

from dataclasses import fields, replace

import pytest
import yaml

from scoring import Pod
from trimaran.extender.decisions.manifest import pod_manifest

SECRET = "hunter2"
PLAIN = "metadata: {name: web}\nspec: {containers: [{resources: {requests: {cpu: 500m, memory: 64Mi}}}]}\n"
FULL = f"""
metadata:
  name: web
  namespace: shop
  uid: 1-2-3
  labels: {{token: {SECRET}}}
  annotations: {{note: {SECRET}, trimaran.io/network: 10M, trimaran.io/disk: 1500m}}
  ownerReferences: [{{kind: ReplicaSet, name: web, uid: u, controller: true}}]
spec:
  schedulerName: gold
  priority: 1000
  nodeName: node-1
  overhead: {{cpu: 10m, memory: 1Ki}}
  resources: {{requests: {{cpu: "3"}}}}
  nodeSelector: {{disk: ssd}}
  tolerations: [{{key: spot, operator: Exists, effect: NoSchedule}}, {{}}, {{key: a, value: b}}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{{key: zone, operator: In, values: [a, b]}}, {{key: gpu, operator: DoesNotExist}}]
          matchFields: [{{key: metadata.name, operator: NotIn, values: [node-9]}}]
  volumes: [{{name: v, secret: {{secretName: {SECRET}}}}}, {{name: m, image: {{reference: model:3}}}}]
  initContainers:
  - {{name: side, restartPolicy: Always, image: proxy, resources: {{requests: {{cpu: 100u}}}}}}
  - {{name: once, image: init, command: [{SECRET}]}}
  containers:
  - name: web
    image: web:1
    command: [sh, -c, {SECRET}]
    env: [{{name: PASSWORD, value: {SECRET}}}]
    resources:
      requests: {{cpu: 250m, memory: 1.5Gi, nvidia.com/gpu: "1"}}
      limits: {{cpu: "1", memory: 2Gi, nvidia.com/gpu: "1", ephemeral-storage: 1000}}
"""
EMPTY_AFFINITY = """
metadata: {name: nowhere}
spec:
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}
  containers: [{}]
"""


@pytest.mark.parametrize("text", [PLAIN, FULL, EMPTY_AFFINITY], ids=["plain", "full", "empty affinity"])
def test_the_manifest_is_read_as_the_same_pod(text):
    """A pod read from the manifest equals the original in every field that scores and filters use."""
    pod = Pod.from_k8s(yaml.safe_load(text))
    decoded = Pod.from_k8s(pod_manifest(pod))
    unknown = {"uid": decoded.uid, "labels": {}, "owner": None, "workload": decoded.workload, "node_name": ""}
    expected = replace(pod, **unknown)
    for field in fields(Pod):
        assert getattr(decoded, field.name) == getattr(expected, field.name), field.name
    for ours, theirs in zip(
        decoded.containers + decoded.init_containers, pod.containers + pod.init_containers, strict=True
    ):
        assert {name: ours.requests.nano(name) for name in ours.requests} == {
            name: theirs.requests.nano(name) for name in theirs.requests
        }


def test_the_manifest_has_no_other_fields():
    """The manifest has no environment, command, label, annotation or secret, and quantities in the usual notation."""
    manifest = pod_manifest(Pod.from_k8s(yaml.safe_load(FULL)))
    assert SECRET not in str(manifest)
    assert manifest["spec"]["containers"] == [
        {
            "image": "web:1",
            "resources": {
                "requests": {
                    "cpu": "250m", "memory": "1536Mi", "nvidia.com/gpu": "1", "ephemeral-storage": "1000",
                },
                "limits": {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "1", "ephemeral-storage": "1000"},
            },
        }
    ]  # fmt: skip
    plain = pod_manifest(Pod.from_k8s(yaml.safe_load(PLAIN)))
    assert plain["spec"] == {
        "schedulerName": "default-scheduler",
        "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}}],
    }
