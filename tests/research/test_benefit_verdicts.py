"""Verdicts about load-aware placement, compared with what it changes in replays."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from support.scripts import imported

from trimaran.planning.benefit import BenefitVerdict
from trimaran.traces.synthetic import Synthetic


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with imported("benefit_verdicts") as module:
        yield module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "overcommit", "verdict"),
    [
        ({"seed": 1, "mean_use": 0.6, "requested": 0.8, "cpu_level": 0.29}, None, BenefitVerdict.GAIN),
        ({"seed": 1, "mean_use": 0.8, "requested": 0.88, "cpu_level": 0.5}, (1.0, 1.0), BenefitVerdict.HARM),
        ({"seed": 3, "mean_use": 0.2, "requested": 0.6, "cpu_level": 0.29}, None, BenefitVerdict.NONE),
    ],
    ids=["overcommitted", "full by requests", "idle"],
)
def test_verdicts_agree_with_replays(
    script: ModuleType, options: dict[str, float], overcommit: tuple[float, float] | None, verdict: BenefitVerdict
) -> None:
    """In generated worlds the verdict of the busiest hour agrees with what load-aware placement changes in a replay."""
    trace = Synthetic(nodes=20, minutes=1080, warm_up_minutes=360, **options).trace()
    benefit, before, after = script.judged(trace, overcommit, 60)
    assert benefit.verdict is verdict
    if verdict is BenefitVerdict.GAIN:
        assert after < 0.8 * before
    elif verdict is BenefitVerdict.HARM:
        assert after > before
    else:
        assert before == after == 0


def test_a_table_is_printed(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Each world has a row with its verdict and its hot minutes."""
    small = Synthetic(3, nodes=4, minutes=240, warm_up_minutes=60).trace()
    monkeypatch.setattr(script, "worlds", lambda _: iter([small]))
    monkeypatch.setattr(sys, "argv", ["benefit_verdicts.py"])
    script.main()
    header, row = capsys.readouterr().out.splitlines()
    assert header == ",".join(script.COLUMNS)
    assert row.split(",")[0] == small.name
    assert row.split(",")[-1] == str(4 * 180)
