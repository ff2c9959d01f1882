"""Remedy for requests that the API server's RBAC rejects."""


def needed_rule(path: str, *verbs: str) -> str:
    """Return the remedy for a 403: the rule that allows requests of a cluster-wide list or its objects.

    Args:
        path: path of the list, such as ``/api/v1/pods`` or ``/apis/metrics.k8s.io/v1beta1/nodes``.
        verbs: verbs of the requests.
    """
    parts = path.strip("/").split("/")
    group, resource = ("", parts[2]) if parts[0] == "api" else (parts[1], parts[3])
    allowed = ", ".join(f'"{verb}"' for verb in verbs)
    rule = f'apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{allowed}]'
    return f"a ClusterRole bound to this user needs the rule {{{rule}}}"
