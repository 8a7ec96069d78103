"""Compiled loops of units."""
