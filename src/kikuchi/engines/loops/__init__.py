"""Loops of iterative work, written once.

`state` holds what the next step depends on; `iterate` takes the steps.
"""
