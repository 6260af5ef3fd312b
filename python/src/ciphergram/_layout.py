"""The order of tensors and the dictionaries that they are in, which sums and files do not tell.

Those sort tensors by name, so that all clients agree. A process remembers how it gave tensors of some names last, and
arranges results so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from .errors import LayoutError

Path = tuple[str, ...]
T = TypeVar("T")

# Layouts that a process remembers: those of the models that it trains, not of all that it ever saw.
_MOST = 16
_given: dict[frozenset[str], list[Path]] = {}


def leaves(tensors: Any, above: Path = ()) -> list[tuple[Path, Any]]:
    """Return what is in a mapping and the mappings within it, each with the names that lead to it.

    Raises:
        LayoutError: A name is not text.
    """
    found = []
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise LayoutError(f"the name {name!r} of a tensor is not text")
        path = (*above, name)
        found += leaves(value, path) if isinstance(value, Mapping) else [(path, value)]
    return found


def flat(path: Path) -> str:
    """Return the name of a tensor within dictionaries, as Flax writes it: ``layer/kernel``."""
    return "/".join(path)


def remember(paths: Iterable[Path]) -> None:
    """Arrange results of these names so from now on."""
    layout = list(paths)
    names = frozenset(map(flat, layout))
    # Again at the end: the oldest goes first.
    _given.pop(names, None)
    _given[names] = layout
    for oldest in list(_given)[:-_MOST]:
        _given.pop(oldest, None)


def order(names: Collection[str]) -> list[str]:
    """Return names in the order in which they were given; if they never were, numbers within them by value."""
    return [flat(path) for path in _paths(names)]


def arrange(arrays: Mapping[str, T], like: Any, kept: Callable[[str, Any], T | None]) -> dict[str, Any]:
    """Return arrays in the order and the dictionaries of others.

    Args:
        arrays: Arrays by flat names.
        like: A mapping of tensors of these names, or the names in their order. None for what this process gave last.
        kept: What becomes of a tensor of `like` that is not among the arrays; None if it may not be there.

    Raises:
        LayoutError: Other names are in `like`.
    """
    if like is None:
        return _nested((path, arrays[flat(path)]) for path in _paths(arrays))
    given = leaves(like) if hasattr(like, "items") else [((name,), None) for name in like]
    found: list[tuple[Path, T]] = []
    for path, value in given:
        array = arrays.get(flat(path))
        array = kept(flat(path), value) if array is None else array
        if array is None:
            raise LayoutError(f"like= has {flat(path)!r}, which was not summed")
        found.append((path, array))
    if missing := arrays.keys() - {flat(path) for path, _ in found}:
        raise LayoutError(f"like= has no {min(missing)!r}, which was summed")
    return _nested(found)


def _paths(names: Collection[str]) -> list[Path]:
    given = _given.get(frozenset(names))
    return given if given is not None else [(name,) for name in sorted(names, key=_natural)]


def _natural(name: str) -> tuple[list[str | int], str]:
    # Text and digits alternate, so that like is compared with like.
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if at % 2 else part for at, part in enumerate(parts)], name


def _nested(items: Iterable[tuple[Path, Any]]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for (*above, name), value in items:
        within = nested
        for step in above:
            within = within.setdefault(step, {})
        within[name] = value
    return nested
