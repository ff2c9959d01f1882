"""Records on exceptions: which plugin raised the exception, and at which extension point.

The exception itself is not wrapped, so callers of the library see its own type. Programs that run third-party plugins,
such as the scheduler, can name the plugin.
"""

import contextlib
import threading
from types import TracebackType
from typing import Final, Self

_ATTRIBUTE: Final = "_trimaran_plugin"


class PluginExit(RuntimeError):
    """A plugin tried to end its caller, for example by ``sys.exit``."""


class blaming:  # noqa: N801  a context manager, as contextlib.suppress
    """Context manager that records on an exception which plugin raised it; an inner record is not replaced.

    SystemExit and the like become a :class:`PluginExit`; only a KeyboardInterrupt in the main thread, where Python
    raises it, passes.

    Args:
        plugin: name of the plugin.
        point: extension point, as kube-scheduler names it: ``Filter``, ``Score``, ...
    """

    __slots__ = ("_plugin", "_point")

    def __init__(self, plugin: str, point: str) -> None:
        self._plugin, self._point = plugin, point

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        is_interrupt = isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
        if not isinstance(error, Exception) and not is_interrupt:
            # Such as SystemExit, which would end the caller's thread.
            ended = PluginExit(f"raised {type(error).__name__}")
            self._note(ended)
            raise ended from error
        self._note(error)

    def _note(self, error: BaseException) -> None:
        with contextlib.suppress(Exception):  # an exception of a plugin may have odd attributes
            if not hasattr(error, _ATTRIBUTE):
                setattr(error, _ATTRIBUTE, (self._plugin, self._point))


def blamed(error: BaseException) -> tuple[str, str]:
    """Return the plugin that raised an exception and its extension point; two empty strings if no plugin did."""
    plugin, point = getattr(error, _ATTRIBUTE, ("", ""))
    return plugin, point
