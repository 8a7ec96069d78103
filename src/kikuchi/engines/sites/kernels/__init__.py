"""Compiled loops of sites."""
