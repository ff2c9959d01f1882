"""Check of a command that must end with an error."""

from click.testing import Result


def check_refusal(result: Result, *words: str, status: int = 2) -> None:
    """Check that a command ended with a status and a message on standard error with these words, not a traceback."""
    assert result.exit_code == status, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    assert [each for each in words if each not in result.stderr] == [], result.output
    assert "Traceback" not in result.output
