"""Pod page: rank the nodes for a pod, with the terms of each score, by a configuration that the viewer edits."""

import time
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
from trimaran.extender.decisions.manifest import pod_manifest
from trimaran.planning.file_gaps import file_gaps
from trimaran.plugins import read_scheduler_file

PATH, TITLE = "/pod", "Pod"
_ROWS = 25
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
    """Return the content of the Pod page, with the manifest of the pod that the URL names.

    The configuration is that of the extender, if one is configured.
    """
    manifest, status = _POD, ""
    if is_filled(context) and query.get("pod"):
        manifest, status = manifest_text(context, query["pod"])
    configuration, note = configuration_text(context)
    if context.nodes_file:
        nodes_hint = f"leave empty for {context.nodes_file.name}"
    elif context.cluster:
        nodes_hint = "leave empty for those of the cluster, with the pods on them"
    else:
        nodes_hint = "output of kubectl get nodes -o yaml"
    return [
        html.P(
            "Change weights and arguments and score again to see their effect. Nothing is sent to the cluster. "
            f"The three texts may have at most {context.max_request_bytes >> 10:,} KB in total."
        ),
        *([_pod_input(context, query.get("pod", ""))] if is_filled(context) else []),
        html.Div(
            [
                _text_area("pod-pod", "Pod or workload, such as a Deployment", manifest or _POD),
                _text_area("pod-configuration", f"KubeSchedulerConfiguration{note}", configuration),
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
            scores, notes = score_pod(current(), pod or "", configuration or "", nodes or "", context)
        except (ClientError, ValueError, KeyError) as error:
            return None, str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        feasible = int((scores.total != INFEASIBLE).sum())
        name = f"{scores.pod.namespace}/{scores.pod.name}"
        status = f"{name}: {feasible} of {len(scores.names)} nodes are feasible; pods count by requests"
        return _ranking(scores), "; ".join((status, *notes))

    if not is_filled(context):
        return

    @app.callback(
        Output("pod-pod", "value"),
        Output("pod-status", "children", allow_duplicate=True),
        Input("pod-pick", "value"),
        prevent_initial_call=True,
    )
    @validate_call
    def pick(name: str | None) -> tuple[Any, str]:
        if not name or name not in pod_names(context)[0]:  # a name that is still being typed
            raise PreventUpdate
        manifest, status = manifest_text(context, name)
        return manifest or no_update, status


def is_filled(context: PageContext) -> bool:
    """Return whether the page can suggest pods, from an extender's decisions or from the cluster."""
    return context.decisions is not None or context.cluster is not None


def configuration_text(context: PageContext) -> tuple[str, str]:
    """Return the KubeSchedulerConfiguration to begin with as YAML, and a note on its origin.

    It is the extender's configuration; or an example, if there is no extender or it is too old to send its own.
    """
    try:
        own = context.decisions.status().get("configuration") if context.decisions else None
    except ServiceUnavailable:
        own = None
    if not own:
        return _CONFIGURATION, ""
    return yaml.safe_dump(own, sort_keys=False), " of the extender"


def manifest_text(context: PageContext, name: str) -> tuple[str, str]:
    """Return the manifest of a pod as YAML, and a status message.

    The manifest has the fields that scores depend on; it is empty if the pod is unknown. Its source is the extender's
    last decision about the pod or, without a decision, the API server.

    Args:
        context: data sources.
        name: ``namespace/name`` of the pod.
    """
    if context.decisions is None or (context.cluster and name not in _decided_pods(context.decisions)):
        return _live_manifest(context, name)
    try:
        decision = context.decisions.explain(name)
    except ServiceUnavailable as error:
        return "", str(error)
    if not decision.get("manifest"):
        return "", f"The extender has no manifest of {name}."
    manifest = yaml.safe_dump(decision["manifest"], sort_keys=False)
    status = f"{name}, with the fields that scores depend on: score it unchanged, or edit it first."
    if expected := decision.get("expected"):  # an older extender sends none
        status += f" The extender's expected use: {expectation_line(expected)}."
    return manifest, status


def _live_manifest(context: PageContext, name: str) -> tuple[str, str]:
    try:
        pod = context.cluster.pod(name) if context.cluster else None
    except ValueError as error:
        return "", str(error)
    if pod is None:
        return "", ""
    manifest = yaml.safe_dump(pod_manifest(pod), sort_keys=False)
    return manifest, f"{name} from the cluster, with the fields that scores depend on."


def _pod_input(context: PageContext, selected: str) -> html.Div:
    """Return a text field that suggests pods of the extender's decisions, and pods that wait for a node."""
    names, failures = pod_names(context)
    control = suggested_input("pod-pick", f"Pod to fill in ({len(names)} pods are suggested)", names, selected)
    return html.Div([control, *(html.P(failure, role="alert") for failure in failures)])


def pod_names(context: PageContext) -> tuple[list[str], list[str]]:
    """Return the pods of the extender's last decisions and the pending pods of the cluster, and why some are missing.

    Pods are named ``namespace/name``, those without a node first.
    """
    names, failures = list[str](), []
    try:
        names += context.cluster.pending_pods() if context.cluster else []
    except ValueError as error:
        failures.append(str(error))
    try:
        names += _decided_pods(context.decisions) if context.decisions else []
    except ServiceUnavailable as error:
        failures.append(str(error))
    return list(dict.fromkeys(names)), failures


def _decided_pods(decisions: Decisions) -> list[str]:
    return [decision["pod"] for decision in decisions.recent()]


def score_pod(
    data: DashboardData, pod: str, configuration: str, nodes: str, context: PageContext
) -> tuple[Scores, tuple[str, ...]]:
    """Score the nodes for a pod; return the scores of all nodes, and notes on data that files of nodes lack.

    Args:
        data: metrics that the viewer may see.
        pod: pod or workload, as YAML.
        configuration: KubeSchedulerConfiguration, as YAML.
        nodes: nodes, as YAML; if empty, the nodes of the context's file or, without a file, of the cluster.
        context: data sources.

    Raises:
        ValueError, KeyError: an input is invalid; the message names it.
        ClientError: no metrics are available.
    """
    table_ = _node_table(nodes, context)
    wanted = Pod.from_k8s(parse_pods(pod, "Pod")[0])
    read = read_scheduler_file(parse_yaml(configuration))
    names = [each.scheduler_name for each in read.profiles]
    # Select the profile by the pod's schedulerName, as kube-scheduler does; for an unknown name, the first profile.
    profile = read.profile(wanted.scheduler_name if wanted.scheduler_name in names else next(iter(names), None))
    judged = FallbackPolicy("open").judge(table_, data.snapshot(), time.time())
    scores = profile.prepare(table_, judged).score(wanted, table_.feasible(wanted))
    is_live = not nodes.strip() and context.nodes_file is None
    return scores, () if is_live else tuple(file_gaps(wanted, table_, scores.plugins))


def _node_table(nodes: str, context: PageContext) -> NodeTable:
    if nodes.strip():
        manifests = parse_objects(nodes, "Node", "Nodes")
    elif context.nodes_file is not None:
        manifests = read_objects(context.nodes_file, "Node")
    elif context.cluster is not None:
        return context.cluster.table()
    else:
        raise ValueError(
            "paste the nodes (output of kubectl get nodes -o yaml), or start the dashboard with --cluster or --nodes"
        )
    return NodeTable.from_k8s(manifests, read_objects(context.pods_file, "Pod") if context.pods_file else [])


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
