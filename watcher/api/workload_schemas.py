"""JSON Schemas of the responses about workloads, for the OpenAPI document."""

from typing import Any


def _object(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def _array(items: dict[str, Any], description: str) -> dict[str, Any]:
    return {"type": "array", "items": items, "description": description}


def _number(description: str) -> dict[str, Any]:
    return {"type": ["number", "null"], "description": description}


_TEXT = {"type": "string"}
_AMOUNTS = _object({"cpu_cores": _number("CPU, cores."), "memory_bytes": _number("Memory, bytes.")})
_NAMES = {"namespace": _TEXT, "kind": _TEXT, "name": _TEXT}
_TIMES = {
    "first_seen": _number("The first measurement, Unix seconds."),
    "last_seen": _number("The newest measurement, Unix seconds."),
    "pods": _number("The number of pods in the newest measurement."),
    "pod_minutes": _number("The minutes of all pods that were measured."),
}
_USE = {
    "use": {**_AMOUNTS, "description": "The expected use of one pod."},
    "deviation": {**_AMOUNTS, "description": "The standard deviation of this use."},
}
_REASON = {
    "type": ["string", "null"],
    "description": "Why the request is not lowered, or why nothing is recommended; null without a reason.",
}
_VERDICT = {
    "enum": ["lower", "raise", "keep", None],
    "description": "The change from the request to the recommendation; keep within 10 percent, null if unknown.",
}
_HOURS = _array(_number("Mean use in the hour; null if unknown."), "24 hours, from 0 UTC.")
_DAYS = _array(_number("Value of the day; null without measurements."), "14 days, the present one first.")
_CONTAINER = _object(
    {
        "name": _TEXT,
        "requests": {**_AMOUNTS, "description": "The mean request in the newest measurement; 0 without requests."},
        "limits": {**_AMOUNTS, "description": "The limits in the newest template; 0 without one."},
        "role": {
            "enum": ["container", "sidecar", "init", None],
            "description": "The part of the pod: a sidecar is an init container that keeps running; null if unknown.",
        },
        **_USE,
        "cpu_cores_percentiles": {"type": "object", "additionalProperties": _number("CPU, cores.")},
        "highest_memory_bytes": _number("The highest use of memory of the last 14 days."),
        "recommended": {
            **_AMOUNTS,
            "description": "The recommended requests: by the setting workloads.rule the 90th percentile of CPU use "
            "plus 15 percent, or the 95th, and the highest memory plus 15 percent; the present request where reason "
            "forbids to lower it.",
        },
        "recommended_limits": {
            **_AMOUNTS,
            "description": "The limits that fit the recommended requests: with a higher request the limit keeps its "
            "ratio, otherwise it stays; null without a limit.",
        },
        "verdict": _object({"cpu_cores": _VERDICT, "memory_bytes": _VERDICT}),
        "reason": _object({"cpu_cores": _REASON, "memory_bytes": _REASON}),
        "wasted": {**_AMOUNTS, "description": "The request minus the use, at least 0, of all pods that run now."},
        **_TIMES,
        "revision_since": _number("The first measurement of the present template, Unix seconds."),
        "by_hour": _object({"cpu_cores": _HOURS, "memory_bytes": _HOURS}),
        "by_day": _object(
            {
                "cpu_cores_percentiles": {"type": "object", "additionalProperties": _DAYS},
                "highest_memory_bytes": _DAYS,
            }
        ),
    },
    "by_hour",
    "by_day",
)
_ITEM = {**_NAMES, **_TIMES, **_USE, "containers": _array(_CONTAINER, "The containers of a pod.")}
_TIMESTAMP = {"timestamp": _number("The end of the newest round of measurements, Unix seconds.")}

WORKLOAD = _object({**_TIMESTAMP, **_ITEM})
"""One workload."""
WORKLOADS = _object(
    {
        **_TIMESTAMP,
        "total": {"type": "integer", "description": "The number of all known workloads."},
        "not_checked": _array(_TEXT, "Reasons against a lower request that could not be checked, and why."),
        "not_measured": _array(
            _object(
                {
                    **_NAMES,
                    "container": {"type": "string", "description": "The name of the container."},
                    "pods": {"type": "integer", "description": "The number of running pods with it."},
                    "reason": {"type": "string", "description": "Why it is not measured, as far as known."},
                }
            ),
            "On the last page: containers of running pods that were never measured, at most 1,000.",
        ),
        "workloads": _array(_object(_ITEM), "The workloads, sorted by namespace, kind and name."),
        "next": {"type": "string", "description": "The value of continue for the next page, if there is one."},
        "omitted": {
            "type": "string",
            "description": "Why workloads are left out, if the caller may not see all namespaces (workloads.access).",
        },
    },
    "not_measured",
    "next",
    "omitted",
)
"""Page of workloads."""
_COLUMN = _array(_number("The value of one workload."), "One value for each workload.")
_PAIR = _array(_COLUMN, "CPU in cores, then memory in bytes.")
_SHARE = _array(_number("A share of the requests."), "CPU, then memory.")
WORKLOAD_COLUMNS = _object(
    {
        **_TIMESTAMP,
        **{name: _array(_TEXT, "One name for each workload.") for name in _NAMES},
        "use": _PAIR,
        "deviations": _PAIR,
        "level": {**_SHARE, "description": "The use of all pods as a share of their requests: CPU, then memory."},
        "level_deviation": {**_SHARE, "description": "The standard deviation of this share."},
        **{name: {**_COLUMN, "description": schema["description"]} for name, schema in _TIMES.items()},
    }
)
"""All workloads in the compact form."""


def _line(description: str) -> dict[str, Any]:
    amounts = _object(
        {
            "cpu_cores": _array(_number("CPU, cores; null if unknown."), "One value for each round."),
            "memory_bytes": _array(_number("Memory, bytes; null if unknown."), "One value for each round."),
        }
    )
    return {**amounts, "description": description}


CLUSTER_TOTALS = _object(
    {
        "times": _array(_number("The end of a round, Unix seconds."), "The rounds of the last day, oldest first."),
        "capacity": _line("What pods may request on all nodes together (allocatable)."),
        "requested": _line("What the containers of all running pods request."),
        "used": _line("What all measured containers use."),
    }
)
"""Capacity, requests and use of all pods together over the last day."""


def _halves(description: str) -> dict[str, Any]:
    return {
        "type": "string",
        "contentEncoding": "base64",
        "description": f"{description}: base64 of little-endian float16 values, row by row; NaN where unknown.",
    }


POD_USE = _object(
    {
        "timestamp": _number("The end of the newest step, Unix seconds."),
        "uid": _array(_TEXT, "The uid of each pod; empty if unknown."),
        "name": _array(_TEXT, "Namespace and name of each pod, with a slash between them."),
        "node": _array(_TEXT, "The node of each pod; empty if unknown."),
        "revision": _array(_TEXT, "The hash of each pod's template; empty if unknown."),
        "workload": _array({"type": "integer"}, "The index of each pod's workload in workloads."),
        "workloads": _array(_array(_TEXT, "Namespace, kind and name."), "The workloads of the pods."),
        "since": _array(_number("Unix seconds."), "The begin of each pod's first step with known use."),
        "last_seen": _array(_number("Unix seconds."), "The end of each pod's newest step with a measurement."),
        "cpu_cores": _halves("CPU of each pod in 288 steps of five minutes, cores, the oldest first"),
        "memory_gib": _halves("Highest memory of each pod in 96 quarters of an hour, GiB, the oldest first"),
        "cpu_course": _halves("Mean CPU of a pod of each workload in each hour of the day (UTC), cores"),
        "memory_course": _halves("Mean memory of a pod of each workload in each hour of the day (UTC), GiB"),
        "waiting": _halves("Highest share of a round of the last hour for which each pod waited for its node's CPU"),
    },
    "waiting",
)
"""Use of single pods over the last day."""
