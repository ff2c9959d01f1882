"""``trimaran config check``: what becomes of a scheduler's configuration."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trimaran.cli.main import main

GOOD = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: trimaran
  plugins:
    score:
      disabled: [{name: "*"}]
      enabled: [{name: TargetLoadPacking, weight: 3}]
  pluginConfig:
  - name: TargetLoadPacking
    args: {targetUtilization: 60, watcherAddress: "http://trimaran:2020/compat"}
"""


def check(tmp_path: Path, text: str, *options: str) -> Result:
    """Write a file and check it."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    return CliRunner().invoke(main, ["config", "check", *options, str(file)])


def test_a_good_configuration_says_what_scores_it_makes(tmp_path):
    """What is ignored is listed with why, then each profile with its weights; status 0."""
    result = check(tmp_path, GOOD)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[-2] == "trimaran: 3 x TargetLoadPacking"
    assert lines[-1].endswith("scheduler.yaml can be used as it is")
    assert [line for line in lines if line.startswith("ignored") and "leaderElection (line 4)" in line]
    assert not [line for line in lines if line.startswith("honored")]


def test_what_is_honored_is_shown_on_demand(tmp_path):
    """--all lists the keys that are honored as they stand, too."""
    lines = check(tmp_path, GOOD, "--all").output.splitlines()
    assert [line for line in lines if line.startswith("honored") and "targetUtilization" in line]


def test_a_misspelt_key_is_told(tmp_path):
    """It is listed with what may be meant, and the status is 1: it can be used, but not as it is meant."""
    result = check(tmp_path, GOOD.replace("targetUtilization", "targetUtilisation"))
    assert result.exit_code == 1
    assert "unknown" in result.output
    assert "did you mean targetUtilization?" in result.output
    assert "TargetLoadPackingArgs.targetUtilisation (line 13): " in result.output
    assert result.output.splitlines()[-2] == "trimaran: 3 x TargetLoadPacking"
    assert result.output.splitlines()[-1].endswith("perhaps not as it is meant: 1 key that nothing knows")


def test_an_address_without_compat_is_told(tmp_path):
    """The Go plugins would find no node there: status 1, with the line and the right address."""
    result = check(tmp_path, GOOD.replace("2020/compat", "2020/"))
    assert result.exit_code == 1
    warning = next(line for line in result.output.splitlines() if line.startswith("warning"))
    assert "profiles[0].pluginConfig[0].args.watcherAddress (line 13)" in warning
    assert warning.endswith("ours is at http://trimaran:2020/compat")
    assert result.output.splitlines()[-1].endswith("1 watcherAddress without /compat")


def test_the_line_of_what_cannot_be_used_is_told(tmp_path):
    """Also in the arguments of a plugin, and in a file with aliases that repeat themselves."""
    result = check(tmp_path, GOOD.replace("targetUtilization: 60", "targetUtilization: 400"))
    assert ", line 13: TargetLoadPackingArgs.targetUtilization: " in result.output
    bomb = "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\n" + "\n".join(f"c{n}: [*b, *b, *b]" for n in range(50))
    assert check(tmp_path, bomb).exit_code == 2


def test_of_several_profiles_the_right_line_is_told(tmp_path):
    """Arguments of one plugin in two profiles are told apart."""
    first = GOOD[GOOD.index("- schedulerName") :]
    second = first.replace("trimaran\n", "second\n").replace("Utilization", "Utilisation")
    result = check(tmp_path, GOOD + second)
    assert "TargetLoadPackingArgs.targetUtilisation (line 21): " in result.output


def test_the_kubernetes_version_is_a_choice(tmp_path):
    """Versions whose rules are known are taken, as the API server writes them too; others are refused."""
    assert check(tmp_path, GOOD, "--kubernetes-version", "v1.34.2").exit_code == 0
    result = check(tmp_path, GOOD, "--kubernetes-version", "1.12")
    assert (result.exit_code, "1.12" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.replace("targetUtilization: 60", "targetUtilization: 400"), "targetUtilization"),
        (GOOD.replace("kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v9"), "apiVersion"),
        ("a: [", "while parsing"),
        ("", "KubeSchedulerConfiguration"),
        ("- 1", "KubeSchedulerConfiguration"),
    ],
)
def test_a_bad_configuration_names_the_key(tmp_path, text, words):
    """What cannot be used is one message with the key's path and status 2, no traceback."""
    result = check(tmp_path, text)
    assert result.exit_code == 2
    assert words in result.output
    assert isinstance(result.exception, SystemExit)


def test_a_file_that_is_not_there():
    """A missing file is named; status 2, as for all that cannot be used."""
    result = CliRunner().invoke(main, ["config", "check", "/no/such/file"])
    assert result.exit_code == 2
    assert "/no/such/file" in result.output
    assert "Traceback" not in result.output
