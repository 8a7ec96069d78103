"""Data of the experiments that registry packages carry, or that are simulated."""
