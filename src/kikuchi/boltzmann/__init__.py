"""Boltzmann machines: dense binary machines with hidden units, restricted and rate-coded ones."""
