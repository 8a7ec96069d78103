"""Certified bounds on log Z that tighten with time, and `auto`, which chooses methods by budget."""
