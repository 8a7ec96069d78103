"""Experiments of Lawrence (2000): mixtures of mean fields in machines, Bayesian ICA,
Bayesian networks."""
