"""`python -m benchmarks defaults`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from benchmarks.defaults.frame import Entry, Task, markdown, run

FAMILIES: tuple[str, ...] = (
    "bayesnn",
    "beliefnets",
    "boltzmann",
    "energy",
    "flows",
    "fresh",
    "hmm",
    "ica",
    "learning",
    "temporal",
)  # modules of this package, each with tasks()


def tasks_of(family: str) -> Sequence[Task]:
    tasks: Callable[[], Sequence[Task]] = import_module(f"benchmarks.defaults.{family}").tasks
    return tasks()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks defaults", description="estimators as constructed"
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument(
        "--choosing", action="store_true", help="the tables on which defaults may be chosen"
    )
    parser.add_argument(
        "--task", default="", metavar="WORD", help="only tasks with this in the name"
    )
    parser.add_argument("--table", default="", metavar="WORD", help="only tables with this in it")
    parser.add_argument("--json", type=Path, help="every score of the run")
    parser.add_argument("--markdown", type=Path, help="the tables of docs/benchmarks.md")
    options = parser.parse_args(arguments)
    unknown = set(options.families) - set(FAMILIES)
    if unknown:
        parser.error(
            f"there is no family {', '.join(sorted(unknown))}; known: {', '.join(FAMILIES)}"
        )
    entries: list[Entry] = []
    texts: list[str] = []
    for family in options.families or FAMILIES:
        for task in tasks_of(family):
            if options.task not in task.name:
                continue
            found = []
            for entry in run(task, choosing=options.choosing, named=options.table):
                found.append(entry)
                print(_line(entry), flush=True)
            entries += found
            texts.append(markdown(task, found))
            print(texts[-1], flush=True)
            if options.json:
                text = json.dumps([asdict(entry) for entry in entries], indent=1)
                options.json.write_text(text, encoding="utf-8")
            if options.markdown:
                options.markdown.write_text("\n".join(texts), encoding="utf-8")


def _line(entry: Entry) -> str:
    said = f"  [{'; '.join(entry.said)}]" if entry.said else ""
    return f"{entry.table:28} {entry.name:36} {entry.score:10.4g} {entry.seconds:8.2f} s{said}"
