"""Assessment as text for a terminal."""

from collections.abc import Iterator, Sequence

from runtime.terminal import colorize, echo, echo_table
from trimaran.assessment.model import Assessment, Consumer, Effect, HotNode, Outcome, utc_text

_SHOWN_NODES, _SHOWN_ROWS = 10, 5
_COLORS = {Effect.GAIN: "green", Effect.HARM: "red"}
_GIB = 2.0**30
CONSUMER_COLUMNS = (
    "PODS",
    "CPU REQUESTED",
    "USED",
    "NOT NEEDED",
    "TOO LOW BY",
    "GIB REQUESTED",
    "USED",
    "NOT NEEDED",
    "TOO LOW BY",
)
OUTCOME_COLUMNS = ("CHANGE", "HOT MINUTES", "PODS WAITED", "MEMORY OVERRUNS", "CPU REQUESTED", "MOVES", "EFFECT")
_REQUESTS_LEGEND = (
    "in cores and GiB. Recommended requests are the 90th percentile of CPU use and the highest memory, plus 15 %; they "
    "free the amounts that are not needed, and add those by which requests are too low."
)
OUTCOMES_LEGEND = (
    "Replays of the recorded pods, which kube-scheduler places again: hot minutes are not those of the real days. The "
    "extender scores nodes by load for kube-scheduler, the rebalancer moves pods."
)
HOT_COLUMNS = ("NODE", "HOT SINCE", "HOT TIME", "MEAN CPU", "PEAK")


def show(assessment: Assessment) -> None:
    """Print the assessment."""
    echo(headline(assessment))
    _title("METRICS AND REQUESTS")
    for problem in assessment.problems:
        echo("  ", colorize(problem.subject, "yellow"), f": {problem.message}")
        echo(f"    -> {problem.remedy}")
    if not assessment.problems:
        echo("  no problem found")
    _title("HOT NODES, 80 % of CPU or more")
    if assessment.hot_nodes is None:
        echo("  not known: the recording has no use of nodes; record it again with this version")
    elif assessment.hot_nodes:
        echo_table(HOT_COLUMNS, [hot_row(each) for each in assessment.hot_nodes[:_SHOWN_NODES]])
        _more(assessment.hot_nodes, _SHOWN_NODES, "hot nodes")
    else:
        echo("  none")
    _title("REQUESTED AND USED, on average")
    has_prices = assessment.cluster.monthly_cost is not None
    columns = ["", *CONSUMER_COLUMNS, *(["A MONTH"] if has_prices else [])]
    rows = [assessment.cluster, *assessment.namespaces[:_SHOWN_ROWS], *changed(assessment.workloads)[:_SHOWN_ROWS]]
    echo_table(columns, [consumer_row(each) for each in rows])
    echo(f"  {requests_legend(assessment)}")
    if assessment.outcomes:
        _title("THE SAME DAYS WITH A CHANGE, replayed")
        colors = {each.value: color for each, color in _COLORS.items()}
        echo_table(
            OUTCOME_COLUMNS, [outcome_row(each) for each in assessment.outcomes],
            lambda _column, cell: colors.get(cell.partition(":")[0]),
        )  # fmt: skip
        echo(f"  {OUTCOMES_LEGEND}")
    _title("NEXT")
    for number, step in enumerate(assessment.steps, 1):
        echo(f"  {number}. {step}")


def requests_legend(assessment: Assessment) -> str:
    """Return what the amounts mean, and what the recommended requests do not regard."""
    return " ".join([_REQUESTS_LEGEND, *(f"Not checked: {each}." for each in assessment.not_checked)])


def changed(consumers: Sequence[Consumer]) -> list[Consumer]:
    """Return the workloads whose requests the recommendation would change."""
    return [each for each in consumers if any(of.freed or of.missing for of in (each.cpu, each.memory))]


def headline(assessment: Assessment) -> str:
    """Return a line with the number of nodes and pods, the length and the source of the recording."""
    days = assessment.minutes / 1440
    length = f"{days:.1f} days" if days >= 1 else f"{assessment.minutes / 60:.0f} hours"
    end = "" if assessment.begin is None else f" to {utc_text(assessment.begin + 60 * assessment.minutes)}"
    pods = f"{assessment.cluster.pods:.0f} pods at a time ({assessment.pods} in all)"
    return f"{assessment.nodes} nodes and {pods}, {length}{end}, from {assessment.source}"


def hot_row(node: HotNode) -> list[str]:
    """Return the cells of a hot node."""
    return [
        node.node, "not now" if node.since is None else utc_text(node.since), f"{node.hot_share:.0%}",
        f"{node.mean_percent:.0f}%", f"{node.peak_percent:.0f}%",
    ]  # fmt: skip


def consumer_row(consumer: Consumer) -> list[str]:
    """Return the cells of a workload or a namespace."""
    cpu, memory = consumer.cpu, consumer.memory
    cost = [] if consumer.monthly_cost is None else [f"{consumer.monthly_cost:,.0f}"]
    return [
        consumer.name, f"{consumer.pods:.0f}",
        *(f"{amount:,.1f}" for amount in (cpu.requested, cpu.used, cpu.freed, cpu.missing)),
        *(f"{amount / _GIB:,.1f}" for amount in (memory.requested, memory.used, memory.freed, memory.missing)),
        *cost,
    ]  # fmt: skip


def outcome_row(outcome: Outcome) -> list[str]:
    """Return the cells of an outcome."""
    effect = "" if outcome.effect is None else f"{outcome.effect}: {outcome.reason}"
    return [
        outcome.change, f"{outcome.hot_minutes:,.0f}", f"{outcome.waited_minutes:,.0f} min",
        f"{outcome.overrun_minutes:,.0f} min", f"{outcome.requested_percent:.0f}%", f"{outcome.moves:,.0f}", effect,
    ]  # fmt: skip


def consumers(assessment: Assessment) -> Iterator[Consumer]:
    """Yield all pods together, then the namespaces and the workloads of the assessment."""
    yield assessment.cluster
    yield from assessment.namespaces
    yield from changed(assessment.workloads)


def _title(text: str) -> None:
    echo()
    echo(colorize(text, "bold"))


def _more(items: Sequence[object], shown: int, name: str) -> None:
    if len(items) > shown:
        echo(f"... and {len(items) - shown} more {name}: see -o json or --html")
