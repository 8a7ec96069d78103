"""Compiled loops of the mean field solvers for ICA."""
