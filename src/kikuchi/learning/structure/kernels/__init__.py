"""Compiled counts of families."""
