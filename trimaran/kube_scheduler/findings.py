"""Problems of a configuration file, and values that could not be checked."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FileProblem:
    """Reason why kube-scheduler refuses a file, or why a value could not be checked.

    Attributes:
        path: path of the key in the file, such as ``profiles[0].plugins.score``; "" for the whole file.
        reason: explanation.
        name: shorter form of the path for messages, such as ``NodeResourcesFitArgs.resources``.
    """

    path: str
    reason: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


@dataclass
class Findings:
    """Problems of a file, in the order in which they are found.

    Attributes:
        refused: reasons why kube-scheduler refuses the file.
        unchecked: values that could not be checked.
        missing: plugins that the file enables and kube-scheduler does not have.
    """

    refused: list[FileProblem] = field(default_factory=list)
    unchecked: list[FileProblem] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def refuse(self, path: str, reason: str) -> None:
        """Record that kube-scheduler refuses the value of a key."""
        self.refused.append(FileProblem(path, reason))

    def leave(self, path: str, reason: str) -> None:
        """Record that a value is not checked."""
        self.unchecked.append(FileProblem(path, reason))

    def refuse_unless(self, valid: object, path: str, reason: str) -> None:
        """Record a refusal unless a condition holds."""
        if not valid:
            self.refuse(path, reason)


@dataclass(frozen=True)
class StartVerdict:
    """Answer to the question whether kube-scheduler starts with a file.

    Attributes:
        refused: reasons why it does not start, apart from missing plugins.
        unchecked: values that could not be checked.
        missing: names of plugins that the file enables and kube-scheduler does not have.
        judge: source of the answer, such as ``the rules of kube-scheduler 1.37``.
    """

    refused: tuple[FileProblem, ...] = ()
    unchecked: tuple[FileProblem, ...] = ()
    missing: tuple[str, ...] = ()
    judge: str = ""

    @property
    def answer(self) -> str:
        """``yes``, ``no`` or ``not checked``."""
        return "no" if self.refused or self.missing else "not checked" if self.unchecked else "yes"

    @property
    def row(self) -> str:
        """Answer with its reason, in one line."""
        if self.missing:
            return f"no: it has no plugin {', '.join(self.missing)}"
        if self.refused:
            return f"no: it refuses {_names(self.refused)}" if self.refused[0].path else f"no: {self.refused[0]}"
        return f"not checked: {_names(self.unchecked)}" if self.unchecked else "yes"


def _names(problems: Iterable[FileProblem]) -> str:
    return ", ".join(dict.fromkeys(each.name or str(each) for each in problems))
