"""Remedy for requests that the API server's RBAC rejects."""


def needed_rule(path: str, *verbs: str) -> str:
    """Return the remedy for a 403: the rule that allows requests of a list or its objects.

    Args:
        path: path of the list, such as ``/api/v1/pods``, ``/apis/metrics.k8s.io/v1beta1/nodes`` or
            ``/api/v1/namespaces/default/events``; with a subresource, such as ``/api/v1/pods/eviction``.
        verbs: verbs of the requests.
    """
    parts = path.strip("/").split("/")
    group, resources = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    role = "a ClusterRole"
    if resources[0] == "namespaces" and len(resources) > 2:
        role, resources = f"a Role in the namespace {resources[1]}", resources[2:]
    resource = "/".join(resources)
    allowed = ", ".join(f'"{verb}"' for verb in verbs)
    rule = f'apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{allowed}]'
    return f"{role} bound to this user needs the rule {{{rule}}}"
