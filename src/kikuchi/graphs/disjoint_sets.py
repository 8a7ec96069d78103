"""Disjoint sets as a forest of parents: which set a member belongs to (union-find)."""

from __future__ import annotations

from typing import Any


def find_root(parents: Any, member: Any) -> Any:
    """The root of the tree of `member`; paths are halved on the way (`parents` is changed).

    >>> parents = [0, 0, 1, 2]
    >>> find_root(parents, 3), parents
    (0, [0, 0, 1, 1])
    """
    while parents[member] != member:
        parents[member] = parents[parents[member]]
        member = parents[member]
    return member
