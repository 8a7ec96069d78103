"""Runs of the experiments that are kept in the package, and the list of their verdicts.

python tools/verdicts.py                write the list into docs/reproduce.md
python tools/verdicts.py ID ...         run these in full first, and keep their tables
python tools/verdicts.py --check        exit code 1 if the list is not what the kept tables say

`--quick` keeps a run of the quick setting; `--resume FILE` and `--data FOLDER`, for an experiment
that has no data of its own, as in `kikuchi reproduce`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kikuchi_experiments.catalogue import all_experiments, find_experiment
from kikuchi_experiments.runner import reproduce
from kikuchi_experiments.stored import store, stored_run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reproduce.md"
BEGIN = "<!-- Verdicts: written by tools/verdicts.py; run it again instead of editing. -->\n"
END = "<!-- End of the verdicts. -->\n"
_ROW_VERDICTS = ("agrees", "disagrees", "not comparable", "not run")
ROWS = "rows: agree, disagree, not comparable, not run"
HEAD = f"| id | title | verdict | {ROWS} | seeds | version | run |"


def render() -> str:
    """One line per experiment: the verdict, the rows behind it, and of when it is."""
    lines = [HEAD, "|---|---|---|---|---:|---|---|"]
    for experiment in all_experiments():
        run, cells = stored_run(experiment), [experiment.id, experiment.title]
        if run is None:
            cells += ["not run", "", "", "", ""]
        else:
            verdicts = [row.verdict for row in run.rows]
            counts = [verdicts.count(v) for v in _ROW_VERDICTS]
            cells += [run.status(experiment), ", ".join(map(str, counts))]
            cells += [str(run.seeds or "–"), run.version, run.date]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the list of today between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{PAGE.name}: the marks of the list are missing")
    return f"{before}{BEGIN}\n{render()}\n{END}{after}"


def main(arguments: list[str] | None = None) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="experiments to run and keep")
    parser.add_argument("--quick", action="store_true", help="keep the quick setting")
    parser.add_argument("--resume", help="file or folder of finished cases")
    parser.add_argument("--data", help="what an experiment without data of its own is run on")
    parser.add_argument("--check", action="store_true", help="verify the page; write nothing")
    options = parser.parse_args(arguments)
    for name in options.ids:
        experiment = find_experiment(name, options.data)
        outcome = reproduce(experiment, quick=options.quick, processes=1, resume=options.resume)
        print(f"{store(outcome).name}: {outcome.verdict}, {outcome.case_seconds:.0f} s")
    page = PAGE.read_text(encoding="utf-8")
    if not options.check:
        PAGE.write_text(written(page), encoding="utf-8")
        return 0
    if written(page) != page:
        print("docs/reproduce.md is not up to date; run python tools/verdicts.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
