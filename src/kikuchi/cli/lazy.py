"""Commands that are loaded when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class LazyCommands(dict[str, Any]):
    """Commands by name, each made by `load` when it is first asked for."""

    def __init__(self, names: Iterable[str], load: Callable[[str], Any]) -> None:
        super().__init__(dict.fromkeys(names))
        self.load = load

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = self.load(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The command of a name, or `default`."""
        if name in self:
            return self[name]
        return default

    def values(self) -> Any:
        """All commands."""
        return {name: self[name] for name in self}.values()

    def items(self) -> Any:
        """All commands with their names."""
        return {name: self[name] for name in self}.items()
