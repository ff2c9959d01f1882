"""Decision by decision: recorded inputs of a live run give the simulator's classes the same scores and the same node.

Each scored pod of the journal is scored again by the profile that the simulator replays: with the metrics that were
served, the levels that were read, and the pods that the extender knew on every node. The scores must be equal on every
candidate. The node with the highest sum of all plugins must be the one that kube-scheduler bound the pod to, or one of
several with the same sum. Other choices have a class:

    lag     another state explains the choice: pods in flight got other nodes than the extender expected, or
            kube-scheduler did not know yet, or knew already, that a pod had ended within a second
    retry   the pod was scored again later, since this attempt did not lead to a binding
    other   not explained
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from placements import Placements
from recorded_inputs import OUR_WEIGHT, Change, RecordedInputs

from scoring.arrays import Int64s
from scoring.plugins.congestion_cost import CongestionCost
from trimaran.traces.trace import Trace

_LAG_SECONDS = 1.0


class Choice(StrEnum):
    """Relation of the node that the pod got to the node with the highest sum."""

    SAME = "same"
    TIE = "tie"
    LAG = "lag"
    RETRY = "retry"
    OTHER = "other"


@dataclass
class DecisionReport:
    """Result of the check.

    Attributes:
        answers: number of all decisions in the extender's own record by outcome; only scored ones are checked.
        decisions: number of scored pods.
        equal_scores: number of them whose scores are equal on every candidate.
        equal_candidates: number of them whose candidates are the nodes that the simulator's filter leaves.
        choices: number of them by choice.
        most_points: largest difference of a score.
        most_percent: largest difference between a served metric and the simulator's window over the real placements.
        other: pods whose node is not explained.
    """

    answers: Counter[str] = field(default_factory=Counter)
    decisions: int = 0
    equal_scores: int = 0
    equal_candidates: int = 0
    choices: Counter[Choice] = field(default_factory=Counter)
    most_points: int = 0
    most_percent: float = 0.0
    other: list[str] = field(default_factory=list)

    @property
    def passes(self) -> bool:
        """True if the scores are equal in all decisions, and the node in 99 percent of those that were bound."""
        bound = self.decisions - self.choices[Choice.RETRY]
        same = self.choices[Choice.SAME] + self.choices[Choice.TIE]
        return bool(self.decisions) and self.equal_scores == self.decisions and same >= 0.99 * bound

    def as_document(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "answers": dict(self.answers),
            "decisions": self.decisions,
            "equal_scores": self.equal_scores,
            "equal_candidates": self.equal_candidates,
            **{choice.value: self.choices[choice] for choice in Choice},
            "most_points": self.most_points,
            "most_metric_percent": round(self.most_percent, 9),
            "passes": self.passes,
            "not_explained": self.other[:20],
        }


def check_decisions(folder: Path, trace: Trace, change: Change = Change.NONE) -> DecisionReport:
    """Check the decisions of a live run.

    Args:
        folder: folder of the live run.
        trace: the played trace.
        change: change of the recorded inputs.
    """
    outcome = orjson.loads((folder / "outcome.json").read_bytes())
    placements = Placements.read(trace, folder / "placements.jsonl")
    inputs = RecordedInputs(trace, placements, outcome["origin"], outcome["speed"], change)
    node_of = {run.uid: trace.nodes[run.node] for run in placements.runs}
    runs = {
        trace.pods[run.pod]: (trace.nodes[run.node], inputs.unix_seconds(run.start), inputs.unix_seconds(run.end))
        for run in placements.runs
    }
    lines = [orjson.loads(line) for line in (folder / "journal.jsonl").read_bytes().splitlines()]
    last = {line["decision"]["uid"]: number for number, line in enumerate(lines) if "decision" in line}
    answers = (orjson.loads(line)["outcome"] for line in (folder / "decisions.jsonl").read_bytes().splitlines())
    report = DecisionReport(Counter(answers))
    for number, line in enumerate(lines):
        if metrics := line.get("metrics"):
            inputs.add_metrics(metrics)
        elif levels := line.get("levels"):
            inputs.add_levels(levels)
        elif decision := line.get("decision"):
            decision = inputs.traced(decision)
            report.decisions += 1
            ours, others, table = inputs.scores(decision)
            difference = int(np.abs(ours - np.array(decision["scores"][CongestionCost.name])).max(initial=0))
            report.equal_scores += not difference
            report.most_points = max(report.most_points, difference)
            report.equal_candidates += set(inputs.feasible(decision, table)) == set(decision["candidates"])
            node_name = node_of.get(decision["uid"]) if last[decision["uid"]] == number else None
            choice = _choice(decision, node_name, OUR_WEIGHT * ours + others)
            if choice is Choice.OTHER:
                states = _other_states(decision, runs)
                sums = (OUR_WEIGHT * ours + inputs.scores(decision, *state)[1] for state in states)
                if any(_choice(decision, node_name, each) is not Choice.OTHER for each in sums):
                    choice = Choice.LAG
                else:
                    report.other.append(decision["pod"])
            report.choices[choice] += 1
    report.most_percent = inputs.most_percent
    return report


def _other_states(
    decision: Mapping[str, Any], runs: Mapping[str, tuple[str, float, float]]
) -> Iterator[tuple[Mapping[str, str], Collection[str]]]:
    """Yield the states that kube-scheduler may have known at a decision, if events of the last moment differ.

    Pods in flight are on the nodes that they really got. Pods that ended about now may be gone already, or be there
    still.

    Args:
        decision: the recorded decision.
        runs: node of each pod by name, and the Unix times of its start and end.
    """
    at = decision["at"]
    flying = [name for _, name, placed_at in decision["pods"] if float(placed_at) == math.inf]
    ending = [name for _, name, _ in decision["pods"] if name in runs and abs(runs[name][2] - at) < _LAG_SECONDS]
    left = [name for _, name, _, left_at in decision["left"] if abs(left_at - at) < _LAG_SECONDS]
    arrived = {name: runs[name][0] if name in runs else "" for name in flying}
    for landed in (arrived, {}):
        for gone in (ending, ()):
            for back in (left, ()):
                yield {**landed, **dict.fromkeys(gone, "")}, back


def _choice(decision: Mapping[str, Any], node_name: str | None, totals: Int64s) -> Choice:
    if node_name is None:
        return Choice.RETRY
    if node_name not in decision["candidates"]:
        return Choice.OTHER
    best = totals == totals.max()
    if not best[decision["candidates"].index(node_name)]:
        return Choice.OTHER
    return Choice.SAME if np.count_nonzero(best) == 1 else Choice.TIE
