"""Public names listed once, in stubs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import kikuchi
from kikuchi.core.lazy import public_names, read_stub

SOURCE = Path(kikuchi.__file__).parent
PACKAGES = [
    ".".join(("kikuchi", *stub.parent.relative_to(SOURCE).parts))
    for stub in sorted(SOURCE.rglob("__init__.pyi"))
]
PACKAGES.append("kikuchi_experiments")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_of_a_stub_is_found_where_the_stub_says(name: str) -> None:
    package = import_module(name)
    homes = read_stub(Path(str(package.__file__)).with_suffix(".pyi"))
    assert homes and set(homes) <= set(package.__all__) and set(homes) <= set(dir(package))
    for public, module in homes.items():
        found = getattr(package, public)
        if isinstance(found, ModuleType):  # `kk.query` is the room of that name, which is called
            assert callable(found) and module.startswith(f"{name}.{public}.")
        else:
            assert found is getattr(import_module(module), public)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kikuchi' has no attribute 'belief'"):
        _ = kikuchi.belief  # type: ignore[attr-defined]


def test_a_name_that_moved_is_an_error_with_its_place() -> None:
    place = "kikuchi_experiments.applications.detection.detect"
    with pytest.raises(AttributeError, match=f"no attribute 'detect'; use {place}"):
        _ = kikuchi.detect  # type: ignore[attr-defined]
    module, _, name = place.rpartition(".")
    assert callable(getattr(import_module(module), name))


def test_a_stub_is_read_from_its_import_lines_only(tmp_path: Path) -> None:
    (tmp_path / "__init__.pyi").write_text(
        "from kikuchi.core.budget import Budget as Budget\n\n__version__: str\n"
    )
    find, names, public = public_names("toy", str(tmp_path / "__init__.py"))
    assert public == names() == ["Budget"] and find("Budget") is kikuchi.Budget
