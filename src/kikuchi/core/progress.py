"""Progress: what a long run tells the person who waits."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Called a few times a second at most by a running method."""

    def __call__(
        self, done: int, total: int, *, residual: float | None, objective: float | None
    ) -> None:
        """`done` of at most `total` iterations are over."""


def silent(
    done: int, total: int, *, residual: float | None = None, objective: float | None = None
) -> None:
    """Say nothing: the default in Python."""
