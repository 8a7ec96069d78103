"""Shared by all packages: errors, traces, budgets, progress, numerics, seeds, safe files."""
