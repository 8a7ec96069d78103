"""The scripts of tools/ as modules, loaded by path under names of their own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))  # tools import each other as they do when they are run


def load_tool(name: str) -> ModuleType:
    """The script `tools/<name>.py`, under a name that hides no installed package."""
    full = f"kikuchi_tools_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, ROOT / "tools" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]
