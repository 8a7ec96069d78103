"""The rules of the house, checked: where imports may go, how long a module may be, what is banned.

    python tools/check_house.py     one line per fault; exit code 1 if there is any

Rules
-----
* A module of `src/kikuchi` imports its own room or a room below it, never one beside or above; the
  path of a lazy import, a text such as "kikuchi.room.module:Class", counts as one. The package
  `experiments/src/kikuchi_experiments` counts as one room above all others.
* Modules and names that begin with an underscore are not imported from another room, nor by the
  public stubs, whose imports go down as those of modules do.
* `data` is read by `reports`, `cli`, the experiments and tests only.
* A module has at most 600 lines, and a class name occurs once in both packages.
* Import cycles of modules, those inside functions and for types alone included, are no more than
  `MOST_CYCLES`, which only ever falls; nor are functions with more than `MANY_PARAMETERS`
  parameters more than `MOST_WITH_MANY`.
* Kernels (any folder `kernels`) hold functions over flat arrays: no classes but NamedTuples.
* No pickle, no code run from data, no handler that swallows every error, no work left as a note.
* Processes are started by `core/worker_processes.py` and `core/cluster.py` only.
* No path of one person's machine in any file of the project.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from kikuchi.core.lazy import read_stub

ROOT = Path(__file__).resolve().parents[1]
LIBRARY, EXPERIMENTS = "kikuchi", "kikuchi_experiments"
SOURCES = {LIBRARY: "src", EXPERIMENTS: "experiments/src"}  # package -> the folder that holds it
MAX_LINES = 600
MOST_CYCLES = 0  # it only falls
MANY_PARAMETERS = 8
MOST_WITH_MANY = 34  # functions of the library with more of them; lower it whenever one goes
ALLOWED_LINES: dict[str, int] = {}  # longer by agreement, each with its reason
ALLOWED_TWICE: set[str] = set()  # class names that occur more than once, each with its reason

_FAMILIES = (
    "boltzmann",
    "energy",
    "ica",
    "beliefnets",
    "bayesnn",
    "temporal",
)
_UPPER_FAMILIES = ("flows", "neural")  # build on other families: flows on chains of temporal
_FLOORS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("plots",),
    ("graphs",),
    ("engines",),
    ("methods",),
    ("brackets",),
    ("training",),
    ("learning",),
    (*_FAMILIES, "data"),
    _UPPER_FAMILIES,
    ("queries",),
    ("reports",),
    ("cli",),
    (EXPERIMENTS,),
)
RANKS = {room: rank for rank, rooms in enumerate(_FLOORS) for room in rooms}
FRONT = ("generate", "regions")  # modules of public names beside the front of the package
READERS_OF_DATA = {"data", "reports", "cli", EXPERIMENTS}

_PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}
_RUNNERS = {"eval", "exec"}
_STARTERS = {"multiprocessing", "concurrent", "subprocess", "joblib", "dask", "distributed"}
MAY_START = {
    "kikuchi/core/chunks.py",  # packs results for the way between processes
    "kikuchi/core/parallel.py",
    "kikuchi/core/worker_processes.py",
    "kikuchi/core/cluster.py",
}
_LAZY_PATH = re.compile(r"kikuchi\w*(?:\.\w+)+:\w+")
_NOTES = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(?:work|root|home|Users)/[\w.]+|\b[A-Z]:\\Users\\")
_BINARY = {".png", ".jpg", ".gz", ".npz", ".ico", ".woff2", ".pdf", ".so"}


def check(root: Path = ROOT) -> list[str]:
    """Every fault of the tree below `root`, one line each."""
    faults = []
    classes: dict[str, list[str]] = {}
    public = public_rooms(root / "src" / "kikuchi")
    for name, path in modules(root).items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found = [*import_faults(name, tree, public), *private_faults(name, tree)]
        found += length_faults(name, text)
        found += [*banned_faults(tree), *start_faults(name, tree), *note_faults(text)]
        if "/kernels/" in name:
            found += class_faults(tree)
        faults += [f"{path.relative_to(root).as_posix()}: {fault}" for fault in found]
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(name)
    for path in sorted((root / "src" / "kikuchi").rglob("*.pyi")):
        name = path.relative_to(root / "src").as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = [*import_faults(name, tree, public), *private_faults(name, tree)]
        faults += [f"{path.relative_to(root).as_posix()}: {fault}" for fault in found]
    for word, homes in classes.items():
        if len(homes) > 1 and word not in ALLOWED_TWICE:
            faults.append(f"class {word} stands in {', '.join(homes)}; one name for one thing")
    faults += cycle_faults(import_cycles(modules(root)))
    faults += parameter_faults(many_parameters(modules(root)))
    for path in project_files(root):
        for number, line in _lines(path):
            if _MACHINE_PATH.search(line):
                where = path.relative_to(root).as_posix()
                faults.append(f"{where}: line {number}: a path of one machine: {line.strip()[:80]}")
    return faults


def modules(root: Path) -> dict[str, Path]:
    """Modules of both packages by name, such as `kikuchi/graphs/formats/uai.py`."""
    return {
        path.relative_to(root / folder).as_posix(): path
        for package, folder in SOURCES.items()
        for path in sorted((root / folder / package).rglob("*.py"))
    }


# ---------------------------------------------------------------------- imports


def room_of(name: str) -> str | None:
    """Room of a module such as `kikuchi/graphs/binary.py`; None for the library's own front."""
    package, *folders, file = name.split("/")
    if package == EXPERIMENTS:
        return EXPERIMENTS
    if folders:
        return folders[0]
    return "cli" if file == "__main__.py" else None


def import_faults(name: str, tree: ast.AST, public: dict[str, str]) -> Iterator[str]:
    """Imports of one module that do not go down."""
    room = room_of(name)
    if room is None:
        return
    if room not in RANKS:
        yield f"room '{room}' is not in the house; known: {', '.join(RANKS)}"
        return
    for line, target in _imported_rooms(tree, public, name):
        if target == room:
            continue
        if target not in RANKS:
            yield f"line {line}: imports {target}, which is no room"
        elif target == "data" and room not in READERS_OF_DATA:
            yield f"line {line}: {room} imports data; give the data as an argument instead"
        elif RANKS[target] >= RANKS[room]:
            yield f"line {line}: {room} imports {target}, which is not below it"


def _imported_rooms(tree: ast.AST, public: dict[str, str], name: str) -> Iterator[tuple[int, str]]:
    """(line, room) of each import from both packages, also those inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in SOURCES:
                    yield node.lineno, _room_of_dotted(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, name)
            if module == LIBRARY:
                for alias in node.names:
                    if alias.name != "__version__":
                        yield node.lineno, public.get(alias.name, alias.name)
            elif module in {f"{LIBRARY}.{front}" for front in FRONT}:
                for alias in node.names:
                    yield node.lineno, public.get(f"{module}.{alias.name}", alias.name)
            elif module.partition(".")[0] in SOURCES:
                yield node.lineno, _room_of_dotted(module)
        elif isinstance(node, ast.Constant) and _LAZY_PATH.fullmatch(str(node.value)):
            yield node.lineno, _room_of_dotted(str(node.value).partition(":")[0])


def _room_of_dotted(dotted: str) -> str:
    package, *rooms = dotted.split(".")
    if package == EXPERIMENTS:
        return EXPERIMENTS
    return rooms[0] if rooms else "(the whole package)"


def _absolute(node: ast.ImportFrom, name: str) -> str:
    """The module an import names, with leading dots resolved against the importing file."""
    if node.level == 0:
        return node.module or ""
    package = name.split("/")[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *(node.module or "").split(".")]).rstrip(".")


def public_rooms(package: Path) -> dict[str, str]:
    """Public name -> room, from the stub of the package and those of the modules beside it.

    Names of these modules are listed as `kikuchi.generate.grid`.
    """
    homes = read_stub(package / "__init__.pyi")
    for front in FRONT:
        stub = package / f"{front}.pyi"
        if stub.is_file():
            names = read_stub(stub)
            homes |= {f"{LIBRARY}.{front}.{name}": module for name, module in names.items()}
    return {
        name: name if module == LIBRARY else _room_of_dotted(module)
        for name, module in homes.items()
    }


def private_faults(name: str, tree: ast.AST) -> Iterator[str]:
    """Imports of modules or names that begin with an underscore from another room."""
    room = room_of(name)
    for node in ast.walk(tree):
        for dotted in _dotted_imports(node, name):
            private = [part for part in dotted.split(".") if re.match(r"_(?!_)", part)]
            if private and _room_of_dotted(dotted) != room:
                yield f"line {getattr(node, 'lineno', 0)}: imports {dotted}, which is private"


def _dotted_imports(node: ast.AST, name: str) -> Iterator[str]:
    """Full names that an import statement binds, those of both packages only."""
    found: list[str] = []
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        module = _absolute(node, name)
        found = [f"{module}.{alias.name}" for alias in node.names]
    yield from (dotted for dotted in found if dotted.partition(".")[0] in SOURCES)


def import_cycles(files: dict[str, Path]) -> list[list[str]]:
    """Sets of modules that import each other in a circle, by any import wherever it stands."""
    import networkx

    known = {_module_name(name) for name in files}
    graph = networkx.DiGraph()
    for name, path in files.items():
        for target in _imported_names(ast.parse(path.read_text(encoding="utf-8")), name):
            found = target if target in known else target.rpartition(".")[0]
            if found in known:
                graph.add_edge(_module_name(name), found)
    circles = networkx.strongly_connected_components(graph)
    return sorted(sorted(circle) for circle in circles if len(circle) > 1)


def cycle_faults(cycles: list[list[str]], most: int = MOST_CYCLES) -> Iterator[str]:
    """Cycles that are too many, one line each."""
    if len(cycles) > most:
        yield f"{len(cycles)} import cycles, at most {most}:"
        yield from (f"    {', '.join(cycle)}" for cycle in cycles)


def many_parameters(files: dict[str, Path]) -> list[str]:
    """Functions of the library with more than `MANY_PARAMETERS` parameters, one line each."""
    found = []
    for name, path in files.items():
        if name.startswith(f"{EXPERIMENTS}/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                count = len([*given.posonlyargs, *given.args, *given.kwonlyargs])
                if count > MANY_PARAMETERS:
                    found.append(f"{name}: {node.name} has {count}")
    return found


def parameter_faults(found: list[str], most: int = MOST_WITH_MANY) -> Iterator[str]:
    """Functions with many parameters, if there are too many of them."""
    if len(found) > most:
        yield f"{len(found)} functions have more than {MANY_PARAMETERS} parameters, at most {most}:"
        yield from (f"    {line}" for line in found)


def _module_name(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported_names(tree: ast.AST, name: str) -> Iterator[str]:
    """Dotted names that a module imports: modules, and names of modules."""
    for node in ast.walk(tree):
        yield from _dotted_imports(node, name)


# ---------------------------------------------------------------------- contents


def length_faults(name: str, text: str) -> Iterator[str]:
    """Modules that have grown too long to read."""
    lines = text.count("\n")
    limit = ALLOWED_LINES.get(name, MAX_LINES)
    if lines > limit:
        yield f"{lines} lines, at most {limit}; split it"


def banned_faults(tree: ast.AST) -> Iterator[str]:
    """Pickle, code run from data, and handlers that swallow every error."""
    for node in ast.walk(tree):
        names = _imported_modules(node)
        for module in names & _PICKLES:
            yield f"line {node.lineno}: imports {module}; files must hold data only"
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in _RUNNERS:
                yield f"line {node.lineno}: calls {node.func.id}"
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and not _is_false(keyword.value):
                    yield f"line {node.lineno}: allow_pickle; files must hold data only"
        if isinstance(node, ast.ExceptHandler) and _swallows(node):
            yield f"line {node.lineno}: swallows every error; name the error or raise"


def start_faults(name: str, tree: ast.AST) -> Iterator[str]:
    """Modules that start processes, imported where `core.parallel.map` should be called."""
    if name not in MAY_START:
        for node in ast.walk(tree):
            for module in _imported_modules(node) & _STARTERS:
                yield f"line {node.lineno}: imports {module}; call core.parallel.map"


def _imported_modules(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return {(node.module or "").partition(".")[0]}
    return set()


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def _swallows(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(
        kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
        for kind in kinds
    )
    raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    empty = all(isinstance(node, ast.Pass | ast.Continue) for node in handler.body)
    return broad and not raises and (handler.type is None or empty)


def note_faults(text: str) -> Iterator[str]:
    """Comments that leave work for later."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and _NOTES.search(token.string):
            yield f"line {token.start[0]}: {token.string.strip()[:60]}; do it or open an issue"


def class_faults(tree: ast.AST) -> Iterator[str]:
    """Classes among the kernels; a NamedTuple of arrays is allowed, compiled code knows it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and "NamedTuple" not in map(ast.unparse, node.bases):
            yield f"line {node.lineno}: class {node.name}; kernels are functions over flat arrays"


# ---------------------------------------------------------------------- files


def project_files(root: Path) -> list[Path]:
    """Files of the project: those that git tracks or would track; all files where git is not."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
        paths = [root / name for name in listing.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [p for p in root.rglob("*") if not _hidden(p.relative_to(root))]
    return sorted(p for p in paths if p.is_file() and p.suffix not in _BINARY)


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in relative.parts)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    return enumerate(text.splitlines(), start=1)


def main() -> int:
    """Run the check."""
    faults = check()
    for fault in faults:
        print(fault)
    print(f"house: {len(faults)} faults" if faults else "house: in order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
