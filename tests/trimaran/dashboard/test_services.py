"""Services that the dashboard shows next to the watcher: a scheduler's state and a Prometheus' alerts, over HTTP."""

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.servers import served_app
from support.shown_services import prometheus_app, scheduler_app
from werkzeug.wrappers import Response

pytest.importorskip("dash")

from runtime.http.json_service import JsonService, ServiceUnavailable
from trimaran.dashboard import decisions, overview
from trimaran.dashboard.actors import actor_tiles
from trimaran.dashboard.alerts import Alerts
from trimaran.dashboard.embedded import _open_service
from trimaran.dashboard.page_context import PageContext
from trimaran.dashboard.scheduler_state import SchedulerState
from trimaran.scheduler.service.telemetry import AttemptResult
from watcher.settings import DashboardSettings

ATTEMPTS = {AttemptResult.SCHEDULED: 3, AttemptResult.UNSCHEDULABLE: 1, AttemptResult.ERROR: 1}
SHADOW = {
    "compared": 8, "agreed": 6, "missed": 1, "infeasible": 1, "regret": {"mean": 2.5, "p95": 9.0},
    "newest": [{"pod": "shop/a", "ours": "node-1", "theirs": "node-2", "regret": None},
               {"pod": "shop/b", "ours": "node-1", "theirs": "node-1", "regret": 0}],
}  # fmt: skip


def texts(content: Any) -> str:
    """Return a part of the page as JSON text."""
    return orjson.dumps(content, default=lambda part: part.to_plotly_json()).decode()


def test_a_scheduler_that_binds_is_shown() -> None:
    """Its tile and the Decisions page have the attempts by result and the pods by queue, read from its metrics."""
    with served_app(scheduler_app(ATTEMPTS)) as url:
        context = PageContext(scheduler=SchedulerState(JsonService("scheduler", url)))
        tile, page = texts(actor_tiles(context)[2]), texts(decisions.layout(None, {}, context))  # type: ignore[arg-type]
    for text in ("placed 3 pods", "mode bind", "60 % of its attempts", "5 pods wait, 4 of them"):
        assert text in tile
    for text in ("Mode bind: it places pods", "unschedulable", "backoff", "error"):
        assert text in page


@pytest.mark.parametrize(
    ("name", "extender", "sent"),
    [
        ("scheduler", None, "Bearer shared"), ("scheduler", "http://e", "Bearer shared"),
        ("scheduler", "https://e", None), ("alerts", "https://e", "Bearer alerts"),
    ],
)  # fmt: skip
def test_a_token_for_an_encrypted_service_is_not_sent_in_the_clear(
    tmp_path: Path, name: str, extender: str | None, sent: str | None
) -> None:
    """The watcher's page sends the shared token to a service without TLS only if none of the three has TLS."""
    files = {each: tmp_path / each for each in ("shared", "alerts")}
    for token, file in files.items():
        file.write_text(token)
    asked: list[str | None] = []

    def answer(environ: Any, start: Any) -> Any:
        asked.append(environ.get("HTTP_AUTHORIZATION"))
        return Response("{}", content_type="application/json")(environ, start)

    with served_app(answer) as url:
        section = DashboardSettings.model_validate({
            "extender": extender, name: url, "token_file": files["shared"], "alerts_token_file": files["alerts"]
        })  # fmt: skip
        service = _open_service(section, name)
        assert service is not None
        service.get("/status")
        service.close()
    assert asked == [sent]


def test_the_leader_is_found_among_replicas() -> None:
    """A Service leads to any replica: the one that leads is asked; if none does, the page says so."""
    standby, leader = scheduler_app({}, leads=False), scheduler_app(ATTEMPTS)
    asked: list[str] = []

    def balance(environ: Any, start: Any) -> Any:
        asked.append(environ["PATH_INFO"])
        return (standby if len(asked) < 5 else leader)(environ, start)

    with served_app(balance) as url:
        assert SchedulerState(JsonService("scheduler", url)).read().attempts["scheduled"] == 3
    with served_app(standby) as url:
        context = PageContext(scheduler=SchedulerState(JsonService("scheduler", url)))
        assert "Lease" in texts(actor_tiles(context)[2])


def test_a_scheduler_in_shadow_is_shown() -> None:
    """Its tile has the share of pods on the same node, and the Decisions page the newest comparisons."""
    with served_app(scheduler_app({}, SHADOW)) as url:
        context = PageContext(scheduler=SchedulerState(JsonService("scheduler", url)))
        tile, page = texts(actor_tiles(context)[2]), texts(decisions.layout(None, {}, context))  # type: ignore[arg-type]
    for text in ("mode shadow", "8 pods compared, 75 %"):
        assert text in tile
    assert page.index("shop/b") < page.index("shop/a")
    assert "nodes?node=node-2" in page


def test_alerts_have_their_start_and_remedy() -> None:
    """Alerts of trimaran's rules are shown, firing and critical ones first; those of other rules are left out."""

    def alert(name: str, state: str, severity: str) -> dict[str, Any]:
        return {
            "labels": {"alertname": name, "severity": severity}, "state": state, "value": "1e+00",
            "activeAt": time.strftime("%Y-%m-%dT%H:%M:%S.123456789Z", time.gmtime(time.time() - 7200)),
            "annotations": {"summary": f"{name} is bad", "description": f"mend {name}"},
        }  # fmt: skip

    raised = [
        alert("TrimaranRestarts", "pending", "critical"), alert("NodeDown", "firing", "critical"),
        alert("TrimaranFetchesFail", "firing", "warning"), alert("TrimaranDown", "firing", "critical"),
    ]  # fmt: skip
    with served_app(prometheus_app(raised)) as url:
        read = Alerts(JsonService("Prometheus", url)).read()
    assert [each.name for each in read] == ["TrimaranDown", "TrimaranFetchesFail", "TrimaranRestarts"]
    row = overview.alert_rows(read, time.time())[0]
    assert (row[3].children, row[4:]) == ("2 h ago", ["TrimaranDown is bad", "mend TrimaranDown"])


def test_other_services_at_the_address_are_reported() -> None:
    """Something that is no scheduler or no Prometheus is an error with its address, and the page is served."""
    with served_app(prometheus_app("none")) as url:
        context = PageContext(
            scheduler=SchedulerState(JsonService("scheduler", f"{url}/x")),
            alerts=Alerts(JsonService("Prometheus", url)),
        )
        assert "malformed answer" in texts(overview._alerts(context))
    with served_app(Response("# no metrics of ours\n")) as url:
        with pytest.raises(ServiceUnavailable, match="trimaran scheduler"):
            SchedulerState(JsonService("scheduler", url)).read()
    assert "does not answer" in texts(actor_tiles(context)[2])
