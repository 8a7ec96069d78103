"""Compiled loops over flat arrays: functions and NamedTuples of arrays, nothing else."""
