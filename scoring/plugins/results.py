"""Checks of the arrays that plugins and callers pass: their types and shapes, in constant time.

A user's plugin may return anything. Floating-point scores would be truncated, and integers of another size would be
read as other numbers, so both are checked before they are used.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Bools, Int64s

_INT64, _BOOL = np.dtype(np.int64), np.dtype(np.bool_)


def check_type(argument: str, value: object, kind: type, remedy: str) -> None:
    """Check the type of an argument.

    Args:
        argument: name of the argument.
        value: value of the argument.
        kind: type that the value must have.
        remedy: advice for the user.

    Raises:
        TypeError: the value has another type.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{argument}: must be a {kind.__name__}, got a {type(value).__name__}: {remedy}")


def as_scores(values: Any, shape: tuple[int, ...], plugin: str, method: str) -> Int64s:
    """Return scores as an int64 array.

    Args:
        values: scores: an array, a list or a number.
        shape: shape that the scores must have.
        plugin: name of the plugin that returned the scores, for errors.
        method: name of its method, for errors.

    Raises:
        TypeError: the scores are not integers that fit an int64.
        ValueError: the scores have another shape.
    """
    array: NDArray[Any] = np.asarray(values)
    if array.dtype != _INT64:
        if array.dtype.kind not in "iu" or not np.can_cast(array.dtype, _INT64):
            raise TypeError(f"{plugin}.{method}: must be integers (int64), got {array.dtype}")
        array = array.astype(_INT64)
    if array.shape != shape:
        raise ValueError(f"{plugin}.{method}: must have the shape {shape}, got {array.shape}")
    return array


def has_scores(terms: Mapping[str, Any], shape: tuple[int, int]) -> bool:
    """Return whether ``score`` is an int64 array of the given shape, or of one row of it, as in nearly all terms."""
    scores = terms.get("score")
    return type(scores) is np.ndarray and scores.dtype is _INT64 and scores.shape in (shape, shape[1:])


def with_scores(terms: Mapping[str, Any], shape: tuple[int, int], plugin: str) -> dict[str, NDArray[Any]]:
    """Return the terms with ``score`` converted to an int64 array of the given shape.

    Args:
        terms: terms that a plugin computed for pods.
        shape: numbers of pods and of nodes, to which the scores must broadcast.
        plugin: name of the plugin, for errors.

    Raises:
        TypeError: the scores are not integers.
        ValueError: there are no scores, or they do not broadcast to the shape.
    """
    if "score" not in terms:
        raise ValueError(f"{plugin}.pod_terms: must return the term 'score', got {list(terms)}")
    scores = np.asarray(terms["score"])
    with contextlib.suppress(ValueError):  # other shapes are refused below
        scores = np.broadcast_to(scores, shape)
    return {**terms, "score": as_scores(scores, shape, plugin, "pod_terms: score")}


def as_mask(feasible: Any, shape: tuple[int, ...]) -> Bools:
    """Return a mask of feasible nodes as an array: integers would select rows instead of masking them.

    Raises:
        TypeError: the mask does not consist of booleans.
        ValueError: the mask has another shape.
    """
    mask: NDArray[Any] = np.asarray(feasible)
    if mask.dtype != _BOOL:
        raise TypeError(f"feasible: must be an array of bool, got {mask.dtype}")
    if mask.shape not in (shape, shape[-1:]):
        raise ValueError(f"feasible: must have the shape {shape}, got {mask.shape}")
    return mask
