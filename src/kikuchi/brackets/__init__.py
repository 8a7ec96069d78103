"""Certified bounds on log Z that tighten with time, and `auto`, which selects methods by budget."""
