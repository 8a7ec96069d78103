"""Compiled loops of dense machines."""
