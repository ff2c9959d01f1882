"""The real kube-scheduler and its rules in trimaran judge the same files."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from control_plane.builds import binary
from support.scheduler_files import mutations

from scoring.kubernetes_version import LATEST_VERSION
from trimaran.cli.main import main
from trimaran.kube_scheduler.binary import KubeSchedulerProgram
from trimaran.kube_scheduler.verdict import verdict_of

pytestmark = pytest.mark.e2e
SEED, COUNT = 2026, 40


@pytest.fixture(scope="module")
def program() -> Path:
    return binary("kube-scheduler")


def test_mutated_files_get_the_same_verdict(program, record_property):
    """Of 40 files, none is a yes that the program refuses, and none a no that it accepts."""
    scheduler, wrong, answers = KubeSchedulerProgram(program), [], []
    for name, text in mutations(SEED, COUNT):
        real, own = scheduler.verdict(text), verdict_of(text, LATEST_VERSION)
        answers.append((real.answer, own.answer))
        if own.answer not in {real.answer, "not checked"}:
            wrong.append((name, real.row, own.row))
    counts = {pair: answers.count(pair) for pair in sorted(set(answers))}
    record_property("figures", f"verdicts of {scheduler.judge} and its rules: {counts}")
    assert wrong == []
    assert min(sum(real == answer for real, _ in answers) for answer in ("yes", "no")) >= 0.3 * COUNT


def test_the_commands_ask_the_program(program, tmp_path):
    """``config check`` and ``extender config --check`` report what the program says."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodInitialBackoffSeconds: 20\n"
        "clientConnection: {kubeconfig: /no/such/file}\n"
    )
    for command in ("config check", "extender config --check"):
        arguments = [*command.split(), str(file), "--kube-scheduler", str(program), "--kubernetes-version", "1.37"]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 1
        assert "podMaxBackoffSeconds: Invalid value: 10" in done.output
    assert "(kube-scheduler v1.37" in CliRunner().invoke(main, ["config", "check", *arguments[3:]]).output
