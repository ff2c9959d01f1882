"""Pod page: rank the nodes for a pod, with the terms of each score, under any plugin arguments and weights."""

import time
from pathlib import Path
from typing import Any

import yaml
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate
from pydantic import validate_call

from client.errors import ClientError
from runtime.http.json_service import ServiceUnavailable
from runtime.kubernetes.manifests import parse_objects, parse_pods, read_objects
from runtime.parsing import parse_yaml
from scoring import INFEASIBLE, FallbackPolicy, NodeTable, Pod, Scores
from scoring.load.pod_expectation import expectation_line
from trimaran.dashboard.components import CurrentData, Query, labeled_control, node_link, suggested_input, table
from trimaran.dashboard.data import DashboardData
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.page_context import PageContext
from trimaran.plugins import read_scheduler_file

PATH, TITLE = "/pod", "Pod"
_ROWS = 25
_NO_PODS = "Pod of a decision: the extender has not scored any pod yet"
_POD = """kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    resources: {requests: {cpu: 500m, memory: 1Gi}}
"""
_CONFIGURATION = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled:
      - {name: LoadVariationRiskBalancing, weight: 1}
      - {name: TargetLoadPacking, weight: 1}
  pluginConfig:
  - name: TargetLoadPacking
    args: {targetUtilization: 50}
  - name: LoadVariationRiskBalancing
    args: {safeVarianceMargin: 1}
"""


def layout(_data: DashboardData, query: Query, context: PageContext) -> list[Any]:
    """Return the content of the Pod page; if the URL names a pod that the extender has scored, with its manifest."""
    manifest, status = _POD, ""
    if context.decisions and query.get("pod"):
        manifest, status = manifest_text(context.decisions, query["pod"])
    nodes_hint = (
        f"leave empty for {context.nodes_file.name}" if context.nodes_file else "output of kubectl get nodes -o yaml"
    )
    return [
        html.P(
            "Change weights and arguments and score again to see their effect. Nothing is sent to the cluster. "
            f"The three texts may have at most {context.max_request_bytes >> 10:,} KB in total."
        ),
        *([_pod_input(context.decisions, query.get("pod", ""))] if context.decisions else []),
        html.Div(
            [
                _text_area("pod-pod", "Pod or workload, such as a Deployment", manifest or _POD),
                _text_area("pod-configuration", "KubeSchedulerConfiguration", _CONFIGURATION),
                _text_area("pod-nodes", f"Nodes ({nodes_hint})", ""),
            ],
            className="controls",
        ),
        html.Button("Score", id="pod-score", n_clicks=0),
        html.P(status, id="pod-status", role="status"),
        html.Div(id="pod-ranking"),
    ]


def register(app: Dash, current: CurrentData, context: PageContext) -> None:
    """Register the callbacks of the Pod page."""

    @app.callback(
        Output("pod-ranking", "children"),
        Output("pod-status", "children"),
        Input("pod-score", "n_clicks"),
        State("pod-pod", "value"),
        State("pod-configuration", "value"),
        State("pod-nodes", "value"),
        prevent_initial_call=True,
    )
    @validate_call
    def show(clicks: int | None, pod: str | None, configuration: str | None, nodes: str | None) -> tuple[Any, str]:
        del clicks
        try:
            scores = score_pod(
                current(), pod or "", configuration or "", nodes or "", context.nodes_file, context.pods_file
            )
        except (ClientError, ValueError, KeyError) as error:
            return None, str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        feasible = int((scores.total != INFEASIBLE).sum())
        name = f"{scores.pod.namespace}/{scores.pod.name}"
        return _ranking(scores), f"{name}: {feasible} of {len(scores.names)} nodes are feasible; pods count by requests"

    if (decisions := context.decisions) is None:
        return

    @app.callback(
        Output("pod-pod", "value"),
        Output("pod-status", "children", allow_duplicate=True),
        Input("pod-pick", "value"),
        prevent_initial_call=True,
    )
    @validate_call
    def pick(name: str | None) -> tuple[Any, str]:
        try:
            if not name or name not in _pod_names(decisions):  # a name that is still being typed
                raise PreventUpdate
        except ServiceUnavailable as error:
            return no_update, str(error)
        manifest, status = manifest_text(decisions, name)
        return manifest or no_update, status


def manifest_text(decisions: Decisions, name: str) -> tuple[str, str]:
    """Return the manifest of a pod from the extender's last decisions as YAML, and a status message.

    The manifest has the fields that scores depend on; it is empty if the pod is unknown.

    Args:
        decisions: decisions of the extender.
        name: ``namespace/name`` of the pod.
    """
    try:
        decision = decisions.explain(name)
    except ServiceUnavailable as error:
        return "", str(error)
    if not decision.get("manifest"):
        return "", f"The extender has no manifest of {name}."
    manifest = yaml.safe_dump(decision["manifest"], sort_keys=False)
    status = f"{name}, with the fields that scores depend on: score it unchanged, or edit it first."
    if expected := decision.get("expected"):  # an older extender sends none
        status += f" The extender's expected use: {expectation_line(expected)}."
    return manifest, status


def _pod_input(decisions: Decisions, selected: str) -> html.Div:
    """Return a text field that suggests the pods of the extender's last decisions."""
    try:
        names = _pod_names(decisions)
    except ServiceUnavailable as error:
        return html.Div(html.P(str(error), role="alert"))
    text = f"Pod of a decision of the extender ({len(names)} pods)" if names else _NO_PODS
    return suggested_input("pod-pick", text, names, selected)


def _pod_names(decisions: Decisions) -> list[str]:
    return list(dict.fromkeys(decision["pod"] for decision in decisions.recent()))


def score_pod(
    data: DashboardData, pod: str, configuration: str, nodes: str, nodes_file: Path | None, pods_file: Path | None
) -> Scores:
    """Score the nodes for a pod, and return the scores of all nodes.

    Args:
        data: metrics that the viewer may see.
        pod: pod or workload, as YAML.
        configuration: KubeSchedulerConfiguration, as YAML.
        nodes: nodes, as YAML; empty to read ``nodes_file``.
        nodes_file: file with the nodes.
        pods_file: file with the running pods; None if unknown.

    Raises:
        ValueError, KeyError: an input is invalid; the message names it.
        ClientError: no metrics are available.
    """
    if nodes.strip():
        manifests = parse_objects(nodes, "Node", "Nodes")
    elif nodes_file is not None:
        manifests = read_objects(nodes_file, "Node")
    else:
        raise ValueError("paste the nodes (output of kubectl get nodes -o yaml), or start the dashboard with --nodes")
    running = read_objects(pods_file, "Pod") if pods_file else []
    table_ = NodeTable.from_k8s(manifests, running)
    wanted = Pod.from_k8s(parse_pods(pod, "Pod")[0])
    profile = read_scheduler_file(parse_yaml(configuration)).profile()
    judged = FallbackPolicy("open").judge(table_, data.snapshot(), time.time())
    return profile.prepare(table_, judged).score(wanted, table_.feasible(wanted))


def _ranking(scores: Scores) -> Any:
    rows = []
    for name in scores.order()[:_ROWS]:
        explanation = scores.explain(name)
        total = "not feasible" if explanation.total == INFEASIBLE else str(explanation.total)
        reasons = [f"{normalized}: {part.line}" for part, _, normalized in explanation.parts]
        rows.append([node_link(name), total, explanation.grade, *reasons])
    header = ["Node", "Score", "Grade", *(f"{part.weighted.weight} x {name}" for name, part in scores.plugins.items())]
    return table("Ranking", header, rows, wraps=True)


def _text_area(id_: str, label: str, value: str) -> html.Div:
    return labeled_control(id_, label, dcc.Textarea(id=id_, value=value, rows=14, spellCheck=False))
