"""Whether the watcher does its work, and if not why, in few words: what is true of several windows is said once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runtime import masking
from watcher.findings import Finding, Kind
from watcher.store import Store

_MOST_FINDINGS, _MOST_PLACES = 10, 5  # all of them are at /findings


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the last fetch worked and data are fresh, and if not, why.

    Attributes:
        reasons: why not; empty means healthy.
        warnings: what is wrong without harming what is served now.
        ages_seconds: window to the age of its newest snapshot.
    """

    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    ages_seconds: Mapping[str, float]

    def __post_init__(self) -> None:
        """Leave out what must not be said: much of it comes from outside."""
        masking.redact_fields(self, "reasons", "warnings")


def reasons(failures: Mapping[str, str], ages_seconds: Mapping[str, float], stale: Sequence[str]) -> tuple[str, ...]:
    """Return why the watcher is not healthy.

    Args:
        failures: window to why the last fetch did not bring it.
        ages_seconds: window to the age of its newest snapshot, where it has one.
        stale: the windows that have nothing fresh.
    """
    late = {
        window: f"the last metrics are {ages_seconds[window]:.0f} s old" if window in ages_seconds else "no metrics yet"
        for window in stale
    }
    return tuple(
        f"{'window' if len(windows) == 1 else 'windows'} {', '.join(windows)}: {why}"
        for why, windows in _by_text([*failures.items(), *late.items()]).items()
    )


def warnings(store: Store, findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return what else is wrong; that a fetch failed is among the reasons already."""
    texts = [f"store: {store.failure}"] if store.failure else []
    if store.set_aside:
        texts.append(f"store: the file was corrupt and is set aside as {store.set_aside.name}")
    places = _by_text(
        (", ".join(filter(None, (finding.node, finding.window))), f"{finding.kind}: {finding.message}")
        for finding in findings
        if finding.kind is not Kind.FETCH_FAILED
    )
    found = sorted(text + _where([each for each in about if each]) for text, about in places.items())
    return (*texts, *found[:_MOST_FINDINGS])


def _where(places: list[str]) -> str:
    more = "; ..." if len(places) > _MOST_PLACES else ""
    return f" ({'; '.join(places[:_MOST_PLACES])}{more})" if places else ""


def _by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return each text with the places that it is about, in their order."""
    places: dict[str, list[str]] = {}
    for place, text in pairs:
        known = places.setdefault(text, [])
        if place not in known:
            known.append(place)
    return places
