"""Fields of Kubernetes objects, in each of the forms that they come in.

What the API server sends (dicts with camelCase keys), what ``to_dict()`` of the kubernetes client makes (snake_case
keys), and the client's objects themselves.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any


def get(owner: Any, camel_name: str) -> Any:
    """Return a field of a dict (either spelling) or of a kubernetes-client object; None when absent."""
    if owner is None:
        return None
    if type(owner) is dict or isinstance(owner, Mapping):  # the first is what nearly all are, and quick to tell
        if camel_name in owner:
            return owner[camel_name]
        snake = _snake(camel_name)
        return None if snake == camel_name else owner.get(snake)
    return getattr(owner, _snake(camel_name), None)


def get_list(owner: Any, camel_name: str, where: str) -> Sequence[Any]:
    """Return a list; an absent one is empty.

    Raises:
        ValueError: there is something else in the field.
    """
    found = get(owner, camel_name)
    if not found:
        return ()
    if not isinstance(found, list | tuple):
        raise ValueError(f"{where}.{camel_name}: must be a list, got {str(found)[:80]!r}")  # noqa: TRY004  a user's mistake
    return found


def get_texts(owner: Any, camel_name: str, where: str) -> dict[str, str]:
    """Return a mapping of texts, such as labels; an absent one is empty.

    Raises:
        ValueError: there is something else in the field.
    """
    found = get(owner, camel_name)
    if not found:
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"{where}.{camel_name}: must be a mapping of texts, got {str(found)[:80]!r}")
    return dict(found)


def unix_seconds(moment: Any, where: str) -> float | None:
    """Return a time in unix seconds; None when there is none.

    Raises:
        ValueError: the text is no time.
    """
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise ValueError(f"{where} has no time in {moment!r}") from None
    return moment.timestamp() if isinstance(moment, datetime) else None


@cache
def _snake(camel_name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in camel_name)
