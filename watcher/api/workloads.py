"""Routes of workloads: a page of them, a single one, all in columns for other services, and the cluster's totals.

:mod:`watcher.api.pod_access` decides what a caller sees.
"""

import re
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING

from flask import Blueprint, Response, request

from runtime.kubernetes.access_reviews import ALL_NAMESPACES
from runtime.kubernetes.workloads import Workload
from runtime.server import responses
from runtime.server.flask_app import flask_response, is_admitted
from runtime.server.responses import HttpResponse
from watcher.api.node_views import UnknownParameter, check_parameters
from watcher.api.pod_access import TOTALS, AccessRefused, PodAccess, PodCaller
from watcher.errors import NotServed
from watcher.usage.learn.unmeasured import unmeasured_items
from watcher.usage.recommend.recommendation import recommended
from watcher.wire import COLUMNS_TYPE, MetricsCode
from watcher.wire.workloads import WorkloadIndex, encode_totals, encode_workloads, workload_items

if TYPE_CHECKING:
    from watcher.usage.learn.learner_service import LearnerService
    from watcher.workload_table import WorkloadTable

_LIMIT, _MAX_LIMIT = 500, 5000
_FILTERS = ("namespace", "kind", "name")
_OMITTED = "workloads of namespaces whose pods you may not list are left out"


def workload_routes(learned: "LearnerService", why_empty: Callable[[], str], access: PodAccess) -> Blueprint:
    """Return the routes ``/workloads``, ``/workloads/totals`` and ``/workloads/<namespace>/<kind>/<name>``.

    Args:
        learned: the learned use of workloads.
        why_empty: returns the reason why no workload is known.
        access: decides which namespaces' workloads a caller sees.
    """
    routes = Blueprint("workloads", __name__)
    views = _Views(learned, why_empty)

    def caller() -> PodCaller:
        return access.caller(request.headers.get("Authorization", ""), is_admitted=is_admitted())

    @routes.get("/workloads")
    def all_workloads() -> Response:
        check_parameters(tuple(request.args), (*_FILTERS, "limit", "continue"))
        if request.accept_mimetypes.best_match([responses.JSON, COLUMNS_TYPE]) == COLUMNS_TYPE:
            caller().require(ALL_NAMESPACES)
            compact = views.compact(request.headers.get("If-None-Match", ""), private=access.is_reviewed)
            return flask_response(compact)
        wanted = {name: request.args[name] for name in _FILTERS if request.args.get(name)}
        limit, after = _limit(request.args.get("limit")), request.args.get("continue", "")
        return flask_response(views.page(caller(), wanted, limit, after))

    @routes.get(TOTALS)
    def totals() -> Response:
        check_parameters(tuple(request.args), ())
        access.check_totals(request.headers.get("Authorization", ""), is_admitted=is_admitted())
        return flask_response(views.totals())

    @routes.get("/workloads/<namespace>/<kind>/<name>")
    def one_workload(namespace: str, kind: str, name: str) -> Response:
        check_parameters(tuple(request.args), ())
        caller().require(namespace)
        return flask_response(views.one(Workload(namespace, kind, name)))

    @routes.app_errorhandler(AccessRefused)
    def refused(error: AccessRefused) -> Response:
        return flask_response(responses.error_response(*error.refusal))

    return routes


class _Views:
    """Responses about workloads. The columns and the index are computed once per measurement of pods."""

    def __init__(self, learned: "LearnerService", why_empty: Callable[[], str]) -> None:
        self._learned, self._why_empty = learned, why_empty
        self._index: WorkloadIndex | None = None
        self._compact: tuple[WorkloadTable | None, bytes, str] = (None, b"", "")

    def compact(self, if_none_match: str, *, private: bool) -> HttpResponse:
        """Return all workloads as columns; with ``private``, shared HTTP caches must not store the response."""
        table = self._table()
        encoded_table, body, etag = self._compact
        if encoded_table is not table:
            body = encode_workloads(table)
            etag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
            self._compact = table, body, etag
        vary, cached = ("Accept, Authorization", "private, no-cache") if private else ("Accept", "no-cache")
        headers = {"ETag": etag, "Vary": vary, "Cache-Control": cached}
        if if_none_match in {etag, f"W/{etag}"}:
            return HttpResponse(b"", 304, None, headers)
        return HttpResponse(body, content_type=COLUMNS_TYPE, headers=headers)

    def page(self, caller: PodCaller, wanted: dict[str, str], limit: int, after: str) -> HttpResponse:
        """Return a page of workloads in the order of their names.

        Args:
            caller: the caller, who may see the workloads of some namespaces only.
            wanted: values that the workloads' namespace, kind or name must have.
            limit: largest number of workloads.
            after: the value of ``next`` in the previous page; "" for the first page.

        Raises:
            AccessRefused: the caller may see no workload, or the API server did not decide.
        """
        if "namespace" in wanted:
            caller.require(wanted["namespace"])
        sees_all = "namespace" in wanted or caller.may_see(ALL_NAMESPACES)
        index = self._indexed()
        last = Workload(*after.split("/", 2)) if after.count("/") >= 2 else None
        if after and last is None:
            raise UnknownParameter(f"continue: must be the value of next in the previous page, not {after[:80]!r}")
        may_see = cache(caller.may_see)

        def is_wanted(workload: Workload) -> bool:
            matches = all(getattr(workload, key) == value for key, value in wanted.items())
            return matches and (sees_all or may_see(workload.namespace))

        following = (each for each in index.workloads if (last is None or each > last) and is_wanted(each))
        chosen = list(islice(following, limit + 1))  # one more, which says whether there is a next page
        if not (sees_all or chosen or after or any(map(may_see, {each.namespace for each in index.workloads}))):
            caller.require(ALL_NAMESPACES)  # raises AccessRefused, with the remedy
        body: dict[str, object] = {
            "timestamp": index.table.timestamp,
            "total": len(index.workloads),
            "not_checked": self._learned.unchecked,
            "workloads": workload_items(index, chosen[:limit]),
        }
        if not sees_all:
            body["omitted"] = _OMITTED
        if len(chosen) > limit:
            body["next"] = "/".join(chosen[limit - 1])
        else:
            body["not_measured"] = unmeasured_items(self._learned.unmeasured, is_wanted)
        return responses.json_response(body)

    def totals(self) -> HttpResponse:
        """Return the cluster's totals at each measurement of pods in the last day."""
        totals = self._learned.totals()
        if not len(totals):
            raise NotServed(MetricsCode.NO_METRICS, "the use of no pod is known", self._why_empty())
        return HttpResponse(encode_totals(totals))

    def one(self, workload: Workload) -> HttpResponse:
        """Return one workload, with its use by the hour of the day and by day."""
        index = self._indexed()
        if workload not in index.places:
            raise NotServed(MetricsCode.UNKNOWN_WORKLOAD, f"unknown workload {'/'.join(workload)[:200]}")
        (item,) = workload_items(index, [workload], self._learned.daily(workload))
        return responses.json_response({"timestamp": index.table.timestamp, **item})

    def _indexed(self) -> WorkloadIndex:
        """Return the workloads of the newest round, with their containers and recommendations."""
        table, index = self._learned.table(), self._index
        if not table.workloads and not self._learned.unmeasured:
            raise self._not_known()
        if index is None or index.table is not table:
            index = self._index = WorkloadIndex.of(table, *recommended(self._learned))
        return index

    def _table(self) -> "WorkloadTable":
        table = self._learned.table()
        if not table.workloads:
            raise self._not_known()
        return table

    def _not_known(self) -> NotServed:
        return NotServed(MetricsCode.NO_METRICS, "the use of no workload is known", self._why_empty())


def _limit(text: str | None) -> int:
    if not text:
        return _LIMIT
    limit = int(text) if re.fullmatch("[0-9]{1,4}", text) else 0
    if not 1 <= limit <= _MAX_LIMIT:
        raise UnknownParameter(f"limit: must be a whole number from 1 to {_MAX_LIMIT}, not {text[:40]!r}")
    return limit
