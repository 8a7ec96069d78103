"""How far an answer can be trusted, and which method to use.

Bounds on log Z that tighten with time, certificates of convergence, consistency of tables with
zeros, and `auto`, which chooses by the budget.
"""
