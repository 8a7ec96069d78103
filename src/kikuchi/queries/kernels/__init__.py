"""Compiled loops of queries."""
