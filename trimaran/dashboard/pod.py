"""One pod: where it would go, the terms of each score, and what other arguments and weights would change."""

import time
from pathlib import Path
from typing import Any

import yaml
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.exceptions import PreventUpdate

from client.errors import ClientError
from runtime.kubernetes.manifests import parse_objects, parse_pods, read_objects
from scoring import INFEASIBLE, FallbackPolicy, NodeTable, Pod, Scores, read_configuration
from trimaran.dashboard.components import Current, Query, labelled, offering, table
from trimaran.dashboard.data import Data
from trimaran.dashboard.extender import Decisions
from trimaran.dashboard.page_context import Beside
from trimaran.extender.decisions.decisions_client import NoAnswer

PATH, TITLE = "/pod", "Pod"
_ROWS = 25
_NONE = "Pick a pod: the extender was asked about none yet"
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


def layout(_data: Data, query: Query, beside: Beside) -> list[Any]:
    """Return the screen; an address that names a pod of the extender's decisions begins with that one."""
    written, said = _POD, ""
    if beside.decisions and query.get("pod"):
        written, said = picked(beside.decisions, query["pod"])
    given = f"empty: those of {beside.nodes_file.name}" if beside.nodes_file else "kubectl get nodes -o yaml"
    return [
        html.P(
            "Change weights and arguments, and score again, to see what they would do. Nothing is sent to the cluster. "
            f"At most {beside.most_pasted_bytes >> 10:,} KB are taken, all three together."
        ),
        *([_choice(beside.decisions, query.get("pod", ""))] if beside.decisions else []),
        html.Div(
            [
                labelled("pod-pod", "Pod, or Deployment", _text("pod-pod", written or _POD)),
                labelled("pod-configuration", "Configuration", _text("pod-configuration", _CONFIGURATION)),
                labelled("pod-nodes", f"Nodes ({given})", _text("pod-nodes", "")),
            ],
            className="controls",
        ),
        html.Button("Score", id="pod-score", n_clicks=0),
        html.P(said, id="pod-said", role="status"),
        html.Div(id="pod-ranking"),
    ]


def register(app: Dash, current: Current, beside: Beside) -> None:
    """Add what the screen does."""

    @app.callback(
        Output("pod-ranking", "children"),
        Output("pod-said", "children"),
        Input("pod-score", "n_clicks"),
        State("pod-pod", "value"),
        State("pod-configuration", "value"),
        State("pod-nodes", "value"),
        prevent_initial_call=True,
    )
    def show(_clicks: int, pod: str, configuration: str, nodes: str | None) -> tuple[Any, str]:
        try:
            made = scored(current(), pod or "", configuration or "", nodes or "", beside.nodes_file, beside.pods_file)
        except (ClientError, ValueError, KeyError, yaml.YAMLError) as error:
            return None, str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        feasible = int((made.total != INFEASIBLE).sum())
        name = f"{made.pod.namespace}/{made.pod.name}"
        return _ranking(made), f"{name}: {feasible} of {len(made.names)} nodes are feasible"

    if (decisions := beside.decisions) is None:
        return

    @app.callback(
        Output("pod-pod", "value"),
        Output("pod-said", "children", allow_duplicate=True),
        Input("pod-pick", "value"),
        prevent_initial_call=True,
    )
    def pick(name: str | None) -> tuple[Any, str]:
        try:
            if not name or name not in _names(decisions):  # while it is being written
                raise PreventUpdate
        except NoAnswer as error:
            return no_update, str(error)
        written, said = picked(decisions, name)
        return written or no_update, said


def picked(decisions: Decisions, name: str) -> tuple[str, str]:
    """Return a pod that asks for what one of an extender's last decisions was about, and what is to be said of it.

    Args:
        decisions: of the extender.
        name: ``namespace/name``.
    """
    try:
        found = decisions.explain(name)
    except NoAnswer as error:
        return "", str(error)
    if not found.get("manifest"):
        return "", f"The extender does not say what {name} asks for."
    written = yaml.safe_dump(found["manifest"], sort_keys=False)
    return written, f"{name}, as far as scores look at it: score it as it is, or change it first."


def _choice(decisions: Decisions, chosen: str) -> html.Div:
    """Return the choice among the pods of the last decisions."""
    try:
        names = _names(decisions)
    except NoAnswer as error:
        return html.Div(html.P(str(error), role="alert"))
    text = f"Pick a pod that the extender was asked about ({len(names)} of them)" if names else _NONE
    return offering("pod-pick", text, names, chosen)


def _names(decisions: Decisions) -> list[str]:
    return list(dict.fromkeys(each["pod"] for each in decisions.recent()))


def scored(
    data: Data, pod: str, configuration: str, nodes: str, nodes_file: Path | None, pods_file: Path | None
) -> Scores:
    """Return a pod's scores.

    Args:
        data: what the reader sees.
        pod: a pod or a workload, as YAML.
        configuration: a KubeSchedulerConfiguration, as YAML.
        nodes: Nodes, as YAML; those of the file when empty.
        nodes_file: where they are then.
        pods_file: where the running pods are, if anywhere.

    Raises:
        ValueError, KeyError: something cannot be used; the message says what.
        ClientError: there are no metrics.
    """
    for text in (pod, configuration, nodes):
        _refuse_aliases(text)
    if nodes.strip():
        found = parse_objects(nodes, "Node", "Nodes")
    elif nodes_file is not None:
        found = read_objects(nodes_file, "Node")
    else:
        raise ValueError("paste the nodes, as kubectl get nodes -o yaml writes them, or start with --nodes")
    running = read_objects(pods_file, "Pod") if pods_file else []
    table_ = NodeTable.from_k8s(found, running)
    wanted = Pod.from_k8s(parse_pods(pod, "Pod")[0])
    profile = read_configuration(yaml.safe_load(configuration)).profile()
    judged = FallbackPolicy("open").judge(table_, data.snapshot(), time.time())
    return profile.prepare(table_, judged).score(wanted, table_.feasible(wanted))


def _refuse_aliases(text: str) -> None:
    """Refuse what a few lines could make very large.

    Raises:
        ValueError: the text has aliases.
    """
    if "&" in text and "*" in text and any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text)):
        raise ValueError("aliases (*name) are not taken here: write out what they stand for")


def _ranking(scores: Scores) -> Any:
    rows = []
    for name in scores.order()[:_ROWS]:
        explained = scores.explain(name)
        total = "not feasible" if explained.total == INFEASIBLE else str(explained.total)
        parts = [f"{normalized}: {part.line}" for part, _, normalized in explained.parts]
        rows.append([name, total, explained.grade, *parts])
    header = ["Node", "Score", "Grade", *(f"{part.weighted.weight} x {name}" for name, part in scores.plugins.items())]
    return table("Ranking", header, rows)


def _text(id_: str, value: str) -> dcc.Textarea:
    return dcc.Textarea(id=id_, value=value, rows=14, spellCheck=False)
