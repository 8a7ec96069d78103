"""`kikuchi examples`: the bundled models."""

from __future__ import annotations

from kikuchi.cli import options


def examples(json: options.Json = None) -> None:
    """List the bundled models.

    Any of them is a MODEL as example:NAME.
    """
    from kikuchi.cli.console import Screen
    from kikuchi.cli.outputs import STANDARD_OUTPUT, check_outputs, write_json
    from kikuchi.data import examples as bundled

    check_outputs("", json)
    found = bundled()
    if json is not None:
        write_json(found, json)
    screen = Screen(quiet=json == STANDARD_OUTPUT)
    screen.table(["model", "what it is"], [[f"example:{n}", what] for n, what in found.items()])
