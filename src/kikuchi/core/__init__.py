"""What every room uses: errors, traces, budgets, progress, numerics, seeds, safe files."""
