"""``trimaran explain`` shows the reasons for a pod's placement; ``trimaran extender regret`` rates past placements.

The regret estimates the load of the node that a pod was bound to, minus the load that the extender's best node would
have had.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from runtime import masking
from runtime.terminal import echo, echo_document, echo_table, output_option
from trimaran.cli.options import checked_url, credential_options, fail, option, pod_argument
from trimaran.extender.decisions import EXPLAIN, REGRET

_TOKEN_NEEDED = "the extender needs a Kubernetes token that may get the pod"  # noqa: S105  a message


def extender_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for an extender's address, its credentials and the output format to a command.

    The command gets the arguments ``address``, ``access`` and ``output``.
    """
    decorated = credential_options("extender")(output_option("text", "json", "yaml")(command))
    return option(
        "--extender", "address", envvar="TRIMARAN_EXTENDER_ADDRESS", show_envvar=True, callback=checked_url,
        default="http://127.0.0.1:2021", help="Address of the extender.",
    )(decorated)  # fmt: skip


@click.command()
@pod_argument
@extender_options
def explain(pod: str, address: str, access: dict[str, Path | None], output: str) -> None:
    """Explain a pod's placement: its candidate nodes, their scores and terms, and the load afterwards.

    \b
    Example: kubectl create token NAME > token; trimaran explain default/web-7d4b9 --token-file token

    Exit status: 0 if the placement is shown, 1 if the extender does not return it, 2 if an option cannot be used.
    """
    decision = get_or_exit(address, access, EXPLAIN, pod=pod)
    with expected_content(address):
        if output == "text":
            _show_decision(decision)
        else:
            echo_document(decision, output)


@click.command(short_help="Compare the chosen nodes with the extender's best nodes.")
@extender_options
def regret(address: str, access: dict[str, Path | None], output: str) -> None:
    """Estimate how much lower the load of the extender's best nodes would be than that of the chosen nodes.

    The regret is an estimate, because the use of single pods is not known.
    """
    summary = get_or_exit(address, access, REGRET)
    with expected_content(address):
        if output == "text":
            _show_regret(summary)
        else:
            echo_document(summary, output)


def get_or_exit(address: str, access: dict[str, Path | None], path: str, **query: str) -> dict[str, Any]:
    """Return the extender's response; if the extender refuses or is unreachable, exit with the reason and status 1."""
    # Imported here so that --help is quick.
    from runtime.http.json_service import JsonService, ServiceUnavailable
    from runtime.kubernetes.access_reviews import TOKEN_NEEDED

    try:
        with closing(JsonService("extender", address, **access)) as service:
            return service.get(path, **query)
    except ServiceUnavailable as error:
        if error.status != 401:
            fail(error, 1)
        if str(error) == TOKEN_NEEDED:  # this message is for programs; add the commands for a person
            fail(f"{_TOKEN_NEEDED}: kubectl create token ACCOUNT > FILE, then --token-file FILE", 1)
        fail(f"{error}; give a token with --token-file", 1)


@contextmanager
def expected_content(address: str) -> Iterator[None]:
    """Exit with status 1 if the ``with`` block fails because the response lacks values or has other types."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        shown = masking.without_credentials(address)
        fail(f"{shown} is not an extender: its answer has unexpected content ({type(error).__name__}: {error})", 1)


def _show_decision(decision: Mapping[str, Any]) -> None:
    for line in _summary(decision):
        echo(line)
    if decision["outcome"] == "not_asked":
        return
    rows = []
    for node in decision["nodes"]:
        cells = ["*" if node["chosen"] else "", node["name"], str(node["answered"]), node["grade"]]
        for plugin in node["plugins"]:
            rows.append([*cells, f"{plugin['name']} {plugin['score']}: {plugin['why']}"])
            cells = [""] * len(cells)
    echo()
    echo_table(["", "NODE", "SCORE", "GRADE", "WHY"], rows)


def _summary(decision: Mapping[str, Any]) -> Iterator[str]:
    from scoring.load.pod_expectation import expectation_line  # imports numpy, and --help must be quick

    chosen = decision.get("chosen") or {}
    if decision["outcome"] == "not_asked":
        yield f"{decision['pod']} runs on {chosen['node']}; the extender did not score it. Possible reasons:"
        yield from (f"  - {reason}" for reason in decision["why"])
        return
    at = datetime.fromtimestamp(decision["at"], UTC)
    yield f"{decision['pod']} ({decision['scheduler']}), answered {at:%Y-%m-%d %H:%M:%S} UTC"
    is_active = decision["mode"] == "active"
    yield f"  outcome     {decision['outcome']}{'' if is_active else ', in shadow mode: all nodes got the same score'}"
    yield f"  candidates  {decision['candidates']}; {decision['in_flight']} pods in flight"
    if data := decision["data"]:
        yield f"  metrics     {data['window']} window of {data['source']}, {data['age_seconds']:.0f} s old"
    if expected := decision.get("expected"):
        yield f"  expected    {expectation_line(expected)}"
    if planned := decision.get("planned"):
        yield f"  planned     {planned['target']}: the rebalancer moved a pod of this workload from {planned['source']}"
    if best := decision["best"]:
        yield f"  best        {best['node']} with {best['score']}, the highest sum with kube-scheduler's own scores"
    if not chosen:
        yield "  chosen      unknown (yet)"
    elif chosen.get("rank") is None:
        reason = ", not scored in the last request" if decision["best"] else ""
        yield f"  chosen      {chosen['node']}{reason}"
    else:
        rank = f"{chosen['score']}, rank {chosen['rank']} by our scores"
        yield f"  chosen      {chosen['node']} with {rank}, {_distance(best, chosen)}"
    if after := decision["after"]:
        uses = (
            f"{which} {', '.join(f'{name} {value:.1f} %' for name, value in after[key].items())}"
            for which, key in (("chosen", "chosen_percent"), ("best with the pod", "best_percent"))
        )
        yield f"  afterwards  {'; '.join(uses)}: estimated regret {after['regret']:+.1f} points"


def _distance(best: Mapping[str, Any] | None, chosen: Mapping[str, Any]) -> str:
    """Return the distance of the chosen node's score from the best node's score as text."""
    margin = int(chosen["margin"])
    if best and best["node"] == chosen["node"]:
        return "the best node"
    return f"{abs(margin)} {'below' if margin > 0 else 'above'} the best node's" if margin else "as the best node"


def _show_regret(summary: Mapping[str, Any]) -> None:
    from trimaran.extender.decisions.regret_table import regret_rows  # so that --help is quick

    header = "SCHEDULER,MODE,PODS,SAME NODE,CHOSEN,BEST,EST. REGRET,P95,CHOSEN HOT,BEST HOT"
    echo_table(header.split(","), regret_rows(summary))
    echo()
    echo(
        f"{summary['waiting']} pods are not counted yet: their first window is not complete; {summary['left_out']} are "
        f"left out: they ended before it, or a node was not measured; hot: {summary['hot_percent']:g} % or more"
    )
    echo("The regret is an estimate: a pod is expected to use the same share of its requests as all pods together.")
    echo("Between two seeds of one policy it is 0 on average.")
