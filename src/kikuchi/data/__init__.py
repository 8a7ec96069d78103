"""Bundled example models and data sets.

>>> example("juror")
FactorGraph(directed, 3 variables, 3 factors, 12 table entries)
"""

from kikuchi.data.examples import example, example_path, examples

__all__ = ["example", "example_path", "examples"]
