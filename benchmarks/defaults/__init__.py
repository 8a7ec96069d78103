"""What a user gets without choosing anything: every estimator as constructed, on many tables.

`python -m benchmarks defaults [FAMILY ...] [--choosing] [--json FILE] [--markdown FILE]` fits each
estimator with its defaults beside the defaults of its peers and beside the simplest baseline, and
lists held-out scores, CPU seconds and what the fit reported about itself. Defaults are chosen on
the tables of `--choosing` alone; the others are those whose figures are published.
"""
