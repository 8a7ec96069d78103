"""Runs the notebooks of the documents and stores what they print and draw.

    python tools/notebooks.py NAME ...    run and store; all when no name is given
    python tools/notebooks.py --check     run, and say where stored text differs; stores nothing

Pictures are stored as they were drawn and not compared. Printed text is compared by
`tools/outputs.py`, with figures within 5 %, since fits depend on how a processor rounds. Results
that have an HTML view are stored with it, and compared by their text.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from outputs import same

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 300
TOLERANCE = 0.05
_NOTICES = ("kikuchi: compiling ", "kikuchi: loading ")


def paths() -> list[Path]:
    """All notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def run(path: Path) -> Any:
    """The notebook after a run in a fresh kernel; an error of a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    return tidied(notebook)


def tidied(notebook: Any) -> Any:
    """Without what changes from run to run: times, identifiers, and the machine's own names."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        kept = []
        for output in cell.outputs:
            output.metadata = {}
            if "data" in output:
                output.execution_count = None
                if "image/png" in output.data:  # beside it, only the name of the class
                    output.data = {"image/png": output.data["image/png"].strip()}
                else:
                    views = ("text/plain", "text/html")
                    output.data = {k: output.data[k] for k in views if k in output.data}
            if not _is_notice(output):
                kept.append(_plain(output))
        cell.outputs = _joined(kept)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Text that was printed in several pieces as one."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _is_notice(output: Any) -> bool:
    """Whether an output only announces a wait, which depends on the cache and the machine."""
    if output.output_type != "stream" or output.name != "stderr":
        return False
    return all(line.startswith(_NOTICES) for line in output.text.splitlines())


def _plain(output: Any) -> Any:
    if output.output_type != "stream":
        output.pop("execution_count", None)
        output.output_type = "display_data"
        return output
    output.pop("metadata", None)
    if output.name == "stderr":
        raise ValueError(f"a notebook of the documents warns: {output.text}")
    return output


def printed(notebook: Any) -> list[str]:
    """What the cells of a notebook printed, in order."""
    return [
        output.text if output.output_type == "stream" else output.data["text/plain"]
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "stream" or "text/plain" in output.data
    ]


def differences(path: Path) -> list[str]:
    """Where a run prints other text than the stored notebook shows."""
    import nbformat

    stored, now = printed(nbformat.read(path, as_version=4)), printed(run(path))
    if len(stored) != len(now):
        return [f"{path.name}: stores {len(stored)} printed outputs, a run has {len(now)}"]
    return [
        f"{path.name} shows\n{a}but prints\n{b}"
        for a, b in zip(stored, now, strict=True)
        if not same(a, b, TOLERANCE)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the tool."""
    import nbformat

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="store nothing, say what differs")
    parser.add_argument("names", nargs="*", help="notebooks to run; all when left out")
    options = parser.parse_args(arguments)
    wrong = 0
    for path in paths():
        if options.names and path.stem not in options.names:
            continue
        if options.check:
            faults = differences(path)
            print("\n".join(faults) or f"{path.name}: runs as shown")
            wrong += len(faults)
        else:
            nbformat.write(run(path), path)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
