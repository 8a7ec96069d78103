"""Compiled loops of learners over flat arrays."""
