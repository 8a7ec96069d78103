"""Public names listed once, in stubs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
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
PACKAGES += [f"kikuchi.{stub.stem}" for stub in SOURCE.glob("[a-z]*.pyi")]
PACKAGES.append("kikuchi_experiments")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_of_a_stub_is_found_where_the_stub_says(name: str) -> None:
    package = import_module(name)
    homes = read_stub(Path(str(package.__file__)).with_suffix(".pyi"))
    modules = {public for public, home in homes.items() if home == name}
    assert homes and set(homes) <= set(dir(package))
    assert set(package.__all__) - {"__version__"} == set(homes) - modules
    for public, module in homes.items():
        found = getattr(package, public)
        assert isinstance(found, ModuleType) == (public in modules)
        if public in modules:
            assert found is import_module(f"{name}.{public}")
        else:
            assert found is getattr(import_module(module), public)


def test_a_public_name_is_the_name_of_no_module_beside_it() -> None:
    """An import of the module would put it in the place of the name."""
    for name in PACKAGES:
        package = import_module(name)
        for public in set(package.__all__) - {"__version__"}:
            assert find_spec_below(package, public) is None, f"{name}.{public}"


def find_spec_below(package: ModuleType, name: str) -> object:
    return find_spec(f"{package.__name__}.{name}") if hasattr(package, "__path__") else None


def test_the_front_has_few_names_and_every_other_one_once() -> None:
    assert len(kikuchi.__all__) <= 45
    homes: dict[str, list[str]] = {}
    for name in PACKAGES:
        for public in import_module(name).__all__:
            homes.setdefault(public, []).append(name)
    twice = {public: names for public, names in homes.items() if len(names) > 1}
    assert twice == {"grid": ["kikuchi", "kikuchi.generate"]}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("JunctionTree", "kikuchi.methods.JunctionTree"),
        ("EM", "kikuchi.learning.EM"),
        ("ldpc", "kikuchi.generate.ldpc"),
        ("region_graph", "kikuchi.regions.region_graph"),
    ],
)
def test_a_name_of_a_public_module_is_an_error_that_says_which(name: str, place: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use {place}$"):
        getattr(kikuchi, name)
    module, _, word = place.rpartition(".")
    assert callable(getattr(import_module(module), word))


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
