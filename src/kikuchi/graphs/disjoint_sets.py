"""Disjoint sets as a forest of parents (union-find)."""

from __future__ import annotations

from typing import Any


def find_root(parents: Any, member: Any) -> Any:
    """Return the root of the tree of `member`, with path halving (`parents` is modified).

    >>> parents = [0, 0, 1, 2]
    >>> find_root(parents, 3), parents
    (0, [0, 0, 1, 1])
    """
    while parents[member] != member:
        parents[member] = parents[parents[member]]
        member = parents[member]
    return member
