"""Health of the watcher as short texts; windows or nodes with the same problem share one text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runtime import masking
from watcher.findings import Finding, Kind
from watcher.store import Store

_MAX_FINDINGS, _MAX_PLACES = 10, 5  # all of them are at /findings


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a watcher: it is healthy if the last fetch of every window succeeded and the data are fresh.

    So a healthy watcher has no finding ``fetch_failed``.

    Attributes:
        reasons: reasons why the watcher is not healthy; empty if it is healthy.
        warnings: problems that do not affect the metrics that are served now.
        ages_seconds: window to the age of its newest snapshot, in seconds.
    """

    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    ages_seconds: Mapping[str, float]

    def __post_init__(self) -> None:
        """Redact secrets and control characters: much of the text comes from outside."""
        masking.redact_fields(self, "reasons", "warnings")


def reasons(
    failures: Mapping[str, str], findings: Iterable[Finding], ages_seconds: Mapping[str, float], stale: Sequence[str]
) -> tuple[str, ...]:
    """Return the reasons why the watcher is not healthy; windows with the same reason share one text.

    Args:
        failures: window to the reason why its last fetch failed.
        findings: open findings. A window can have a finding ``fetch_failed`` without a failure: the source failed, but
            its earlier samples were enough for the window.
        ages_seconds: window to the age of its newest snapshot in seconds, if it has a snapshot.
        stale: windows without a fresh snapshot.
    """
    late = {
        window: f"the last metrics are {ages_seconds[window]:.0f} s old" if window in ages_seconds else "no metrics yet"
        for window in stale
    }
    failed = {
        finding.window: finding.message
        for finding in findings
        if finding.kind is Kind.FETCH_FAILED and finding.window not in failures
    }
    return tuple(
        f"{'window' if len(windows) == 1 else 'windows'} {', '.join(windows)}: {why}"
        for why, windows in _by_text([*failures.items(), *failed.items(), *late.items()]).items()
    )


def warnings(store: Store, findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return texts about problems of the store and at most 10 of the findings.

    Failed fetches are left out, since :func:`reasons` reports them.
    """
    texts = [f"store: {store.failure}"] if store.failure else []
    if store.set_aside:
        texts.append(f"store: the file was corrupt and was set aside as {store.set_aside.name}")
    places = _by_text(
        (", ".join(filter(None, (finding.node, finding.window))), f"{finding.kind}: {finding.message}")
        for finding in findings
        if finding.kind is not Kind.FETCH_FAILED
    )
    messages = sorted(text + _where([each for each in about if each]) for text, about in places.items())
    return (*texts, *messages[:_MAX_FINDINGS])


def _where(places: list[str]) -> str:
    more = "; ..." if len(places) > _MAX_PLACES else ""
    return f" ({'; '.join(places[:_MAX_PLACES])}{more})" if places else ""


def _by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Group pairs of place (such as a window or a node) and text: return each text with its places, in order."""
    places: dict[str, list[str]] = {}
    for place, text in pairs:
        known = places.setdefault(text, [])
        if place not in known:
            known.append(place)
    return places
