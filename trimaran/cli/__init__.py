"""Command line of trimaran: one module for each command."""

import sys

from trimaran.parts import OF_THE_WATCHER, check_own, needing_watcher

__all__ = ["kubectl_plugin", "main"]


def main(program: str = "trimaran") -> None:
    """Run the command; exit with one line if the extra ``watcher`` is missing or other modules have our names."""
    try:
        check_own("client", "runtime", "scoring", "watcher")
        with needing_watcher(f"the command {program}"):
            from trimaran.cli.main import main as run

            run(prog_name=program)
    except ImportError as error:
        if error.name not in OF_THE_WATCHER | {"client", "runtime", "scoring", "watcher"}:
            raise
        sys.exit(f"{program}: {error}")


def kubectl_plugin() -> None:
    """Run a command as ``kubectl trimaran``: kubectl runs a program ``kubectl-trimaran`` that it finds on the PATH."""
    main("kubectl trimaran")
