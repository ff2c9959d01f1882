"""ImageLocality: prefer nodes that already have the pod's images.

    sum   = over the pod's images: trunc(image size * nodes that have it / all nodes)
    score = 100 * (clamp(sum, 23 MiB, limit) - 23 MiB) / (limit - 23 MiB)      limit = 1000 MiB * images

The images are those of the containers and init containers. The sum includes image volumes from kube-scheduler 1.36 on,
the limit from 1.37 on. The score is truncated to an integer. Without the factor (nodes that have it / all
nodes), the only node that has an image would attract all pods with that image.
Source: k8s.io/kubernetes/pkg/scheduler/framework/plugins/imagelocality.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runtime.kubernetes.objects import Pod
from scoring.go_math import truncating_divide
from scoring.kubernetes_version import LATEST_VERSION, at_least, known_version
from scoring.normalization import MAX_NODE_SCORE
from scoring.plugins.base import Rows, Terms, WithoutNodeTerms
from scoring.table.node_table import NodeTable

_MIB = 1024 * 1024
_MIN_BYTES = 23 * _MIB
_MAX_BYTES_PER_IMAGE = 1000 * _MIB


@dataclass(frozen=True)
class ImageLocality(WithoutNodeTerms):
    """Plugin ImageLocality, which has no arguments.

    Attributes:
        kubernetes_version: version of kube-scheduler whose score is computed, such as ``1.37``.

    Raises:
        ValueError: the version is unknown.
    """

    kubernetes_version: str = LATEST_VERSION

    name: ClassVar[str] = "ImageLocality"
    scores_replicas_alike: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "kubernetes_version", known_version(self.kubernetes_version))

    def equal_score(self, pod: Pod, nodes: NodeTable) -> int | None:
        """Return 0 if no node has an image of the pod."""
        images = (*[container.image for container in (*pod.init_containers, *pod.containers)], *pod.image_volumes)
        return None if any(nodes.image(normalized_image_name(image))[0].size for image in images) else 0

    def pod_terms(self, pods: Sequence[Pod], node: Terms, nodes: NodeTable, rows: Rows) -> Terms:  # noqa: ARG002
        """Return the bytes of the pod's images on each node, scaled as in the formula of the module, and the score."""
        volumes_count, volumes_limit = (at_least(self.kubernetes_version, version) for version in ("1.36", "1.37"))
        limits = np.zeros((len(pods), 1), np.int64)
        present = []
        for index, pod in enumerate(pods):
            images = [container.image for container in (*pod.init_containers, *pod.containers)]
            counted = len(images) + (len(pod.image_volumes) if volumes_limit else 0)
            limits[index] = _MAX_BYTES_PER_IMAGE * counted
            for image in (*images, *pod.image_volumes) if volumes_count else images:
                having, sizes = nodes.image(normalized_image_name(image))
                if having.size:
                    present.append((index, having, (sizes * (len(having) / len(nodes))).astype(np.int64)))
        if not present:  # images that are new to the cluster
            zeros = np.zeros((len(pods), len(nodes) if isinstance(rows, slice) else len(rows)), np.int64)
            return {"scaled_bytes": zeros, "limit_bytes": limits, "score": zeros}
        scaled = np.zeros((len(pods), len(nodes)), np.int64)
        for index, having, scaled_bytes in present:
            scaled[index, having] += scaled_bytes
        scaled = scaled[:, rows]  # only now, because the factor depends on all nodes of the table
        # For a pod without containers the limit is below the minimum; the minimum then wins.
        clamped = np.where(scaled < _MIN_BYTES, _MIN_BYTES, np.minimum(scaled, limits))
        score = truncating_divide(MAX_NODE_SCORE * (clamped - _MIN_BYTES), limits - _MIN_BYTES)
        return {"scaled_bytes": scaled, "limit_bytes": limits, "score": score}

    def line(self, terms: Mapping[str, Any]) -> str:
        """Return the size of the pod's images on the node as a sentence."""
        return (
            f"{terms['scaled_bytes'] / _MIB:.0f} MiB of images here, scaled by the share of nodes that have them; "
            f"23 MiB score 0, {terms['limit_bytes'] / _MIB:.0f} MiB 100"
        )


def normalized_image_name(name: str) -> str:
    """Return an image name, with ``:latest`` added if it has no tag.

    A colon starts a tag only after the last slash: before, it starts the port of a registry.
    """
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
