"""Assessment of a recording: problems, hot nodes, unused requests, outcomes of changes, and the next steps."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from trimaran.assessment import node_load
from trimaran.assessment.model import (
    Assessment,
    AssessmentProblem,
    Change,
    Consumer,
    Effect,
    HotNode,
    Outcome,
    Prices,
    utc_text,
)
from trimaran.assessment.outcomes import replayed
from trimaran.assessment.requests import consumers
from trimaran.traces.node_use import NodeUse
from trimaran.traces.trace import Trace
from watcher.usage.sources.known_autoscalers import KnownAutoscalers

_MIN_MINUTES = 24 * 60
_SHOWN = 50  # workloads and namespaces in the document
_BARE_SHARE = 0.2
_WASTE_SHARE = 0.1


def assess(
    folder: Path,
    trace: Trace,
    use: NodeUse | None,
    *,
    source: str,
    found: Sequence[AssessmentProblem] = (),
    autoscalers: KnownAutoscalers,
    prices: Prices,
    configuration: str = "",
    jobs: int = 1,
    with_replays: bool = True,
) -> Assessment:
    """Return the assessment of a recording.

    Args:
        folder: folder of the trace.
        trace: the trace.
        use: use of the nodes as the pods were placed; None if it was not recorded.
        source: where the past was read, for the reader.
        found: problems that were found before.
        autoscalers: autoscalers, whose workloads keep their requests.
        prices: prices of an hour.
        configuration: KubeSchedulerConfiguration that would be installed, as JSON; empty for that of the manifests.
        jobs: number of processes of the replays.
        with_replays: whether to replay the recording.

    Raises:
        TraceError: the trace cannot be replayed.
    """
    everything, namespaces, workloads = consumers(trace, None if use is None else use.begin, autoscalers, prices)
    hot = None if use is None else node_load.hot_nodes(use)
    problems = [*(() if use is None else node_load.problems(use)), *_request_problems(namespaces), *found]
    if use is not None:
        problems += node_load.gaps(use)
    if trace.minutes < _MIN_MINUTES:
        problems.append(
            AssessmentProblem(
                "recording",
                f"it has {trace.minutes / 60:.0f} hours: load differs between hours and days",
                "record a week: --last 7d",
            )
        )
    outcomes = replayed(folder, len(trace.pods), configuration, jobs) if with_replays else []
    return Assessment(
        source=source,
        begin=None if use is None else use.begin,
        minutes=trace.minutes,
        nodes=len(trace.nodes),
        pods=len(trace.pods),
        problems=tuple(problems),
        hot_nodes=None if hot is None else tuple(hot),
        cluster=everything,
        capacity=(float(trace.cpu_capacity_milli.sum()) / 1000, float(trace.memory_capacity_bytes.sum())),
        namespaces=tuple(namespaces[:_SHOWN]),
        workloads=tuple(workloads[:_SHOWN]),
        not_checked=autoscalers.unchecked,
        outcomes=tuple(outcomes),
        steps=tuple(next_steps(problems, hot, everything, outcomes)),
        heat={} if use is None else node_load.heat(use),
    )


def next_steps(
    problems: Sequence[AssessmentProblem],
    hot: Sequence[HotNode] | None,
    everything: Consumer,
    outcomes: Sequence[Outcome],
) -> Iterator[str]:
    """Yield what to do next, the first step first."""
    effects = {each.change: each for each in outcomes}
    if hot and hot[0].since is not None:
        pods = f"kubectl get pods --all-namespaces --field-selector spec.nodeName={hot[0].node}"
        yield f"Look at {hot[0].node}, which is hot since {utc_text(hot[0].since)}: {pods}."
    if problems:
        yield f"Fix the problems listed here, beginning with {problems[0].subject}: {problems[0].remedy}."
    requests = effects.get(Change.REQUESTS)
    freed, missing = (
        each / max(everything.cpu.requested, 1e-9) for each in (everything.cpu.freed, everything.cpu.missing)
    )
    if max(freed, missing) >= _WASTE_SHARE and (requests is None or requests.effect is not Effect.HARM):
        yield (
            f"Change requests: {freed:.0%} of the requested CPU is not needed, {missing:.0%} is missing. To "
            "see recommended requests: trimaran workloads --provider Prometheus --address URL --last 7d."
        )
    extender = effects.get(Change.EXTENDER)
    match None if extender is None else extender.effect:
        case Effect.GAIN:
            yield (
                "Place new pods by load: install the extender in shadow, where it changes nothing, and compare "
                "(docs/adopt.md): helm upgrade --install trimaran deploy/helm/trimaran --namespace trimaran "
                "--create-namespace --set scheduler.enabled=true."
            )
        case Effect.HARM:
            yield "Do not place by load with these requests: change the requests or add nodes, and assess again."
        case Effect.NONE:
            yield "Placing new pods by load would change little here: the extender is not needed."
    moves = effects.get(Change.REBALANCER)
    if moves is not None and moves.effect is Effect.GAIN:
        yield (
            f"Moving {moves.moves:.0f} pods would have given {moves.reason} hot minutes. To see which ones, without "
            "moving any: trimaran rebalance --watcher URL --kube-config FILE."
        )


def _request_problems(namespaces: Sequence[Consumer]) -> Iterator[AssessmentProblem]:
    """Yield namespaces many of whose pods have no requests: kube-scheduler counts them as nothing."""
    for each in sorted(namespaces, key=lambda each: -each.without_requests * each.pods):
        if each.without_requests >= _BARE_SHARE and each.pods >= 1:
            yield AssessmentProblem(
                each.name, f"{each.without_requests:.0%} of its {each.pods:.0f} pods have no request of CPU or memory; "
                f"they use {each.cpu.used:.1f} cores that kube-scheduler does not count",
                f"set requests, or a LimitRange with default requests in {each.name}",
            )  # fmt: skip
