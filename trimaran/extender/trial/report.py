"""Report of a field trial as a JSON object: schedule, blocks, effects with intervals, a verdict, and its limits."""

from typing import Any

from trimaran.extender.trial.effects import MIN_PAIRS, TrialEffect, effect, paired
from trimaran.extender.trial.outcomes import HOT, OUTCOMES
from trimaran.extender.trial.state import TrialPlan, TrialState

#: Outcome that the verdict is about. It is only one: among several outcomes, one is more likely to differ by chance.
PRIMARY = HOT
LIMITS = (
    (
        "Running pods do not move. Each block begins with the pods that the blocks before have placed, so the measured "
        "difference is smaller than that between always acting and never acting, and harm that builds up slowly is in "
        "the shadow blocks, too: compare them with the time before the trial."
    ),
    "The verdict is about {primary} only. One in twenty intervals of the other outcomes does not contain 0 by chance.",
    "The trial compares this cluster at this time. Other pods, other nodes or another season may give another result.",
)


def trial_document(
    plan: TrialPlan, state: TrialState, now: float, *, is_acting: bool = False, problem: str = ""
) -> dict[str, Any]:
    """Return the report of a trial.

    Args:
        plan: settings of the trial.
        state: the trial's state.
        now: Unix time.
        is_acting: whether the extender acts now.
        problem: reason why the trial cannot continue; "" if there is none.
    """
    schedule = plan.schedule
    begin, end = (schedule.block(2 * (state.first_pair + pairs)).start for pairs in (0, schedule.pairs))
    effects = {name: found for name in OUTCOMES if (found := effect(state.blocks, name)) is not None}
    return {
        "name": schedule.name,
        "phase": _phase(plan, state, now),
        "acting": is_acting,
        "problem": problem,
        "settings": {**plan.as_document(), "harm_points": plan.harm_points},
        "begin": begin,
        "end": end,
        "pairs": {"planned": schedule.pairs, "complete": len(paired(state.blocks))},
        "verdict": verdict(plan, state, now),
        "stopped": state.as_document()["stopped"],
        "primary": PRIMARY,
        "effects": {name: _effect_document(found) for name, found in effects.items()},
        "limits": [limit.format(primary=PRIMARY) for limit in LIMITS],
        "blocks": [
            {"start": schedule.block(block["number"]).start, **block} for block in state.as_document()["blocks"]
        ],
    }


def verdict(plan: TrialPlan, state: TrialState, now: float) -> str:
    """Return the result of a trial in a sentence or two."""
    complete, planned = len(paired(state.blocks)), plan.schedule.pairs
    if state.stopped_at is not None:
        return f"Harm: the trial was stopped, and the extender is in shadow. {state.reason}."
    if not state.has_ended(plan.schedule, now):
        return (
            f"Not finished: {complete} of {planned} pairs are complete. Decide at the end: an interval that is checked "
            "many times excludes 0 by chance."
        )
    found = effect(state.blocks, PRIMARY)
    if found is None or found.low is None or found.high is None:
        return f"Undecided: {complete} of {planned} pairs are complete, and an interval needs {MIN_PAIRS}."
    between = f"from {found.low:+.2f} to {found.high:+.2f}"
    if found.high < 0:
        return f"Acting lowers {PRIMARY} by {-found.difference:.2f}, with 95 % confidence {between}: set mode = active."
    if found.low > 0:
        return f"Acting raises {PRIMARY} by {found.difference:.2f}, with 95 % confidence {between}: stay in shadow."
    return f"No effect on {PRIMARY} was found: with 95 % confidence it is {between}. Stay in shadow."


def _phase(plan: TrialPlan, state: TrialState, now: float) -> str:
    if state.stopped_at is not None:
        return "stopped"
    if state.has_ended(plan.schedule, now):
        return "ended"
    return "running" if state.includes(plan.schedule.block_at(now).pair) else "waiting"


def _effect_document(found: TrialEffect) -> dict[str, Any]:
    percent = 100 * found.difference / found.shadow if found.shadow else None
    return {
        "pairs": found.pairs,
        "shadow": round(found.shadow, 4),
        "difference": round(found.difference, 4),
        "difference_percent": None if percent is None else round(percent, 2),
        "low": None if found.low is None else round(found.low, 4),
        "high": None if found.high is None else round(found.high, 4),
    }
