"""A wheel that holds compiled loops is for one version of Python and one kind of machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    """Tags the wheel by the machine that it is built on, if `tools/wheel.py` left loops there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if (Path(self.root) / "src/kikuchi/_loops/manifest.json").exists():
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
