"""Compiled loops over flat arrays: no classes, no Python objects, nothing else."""
