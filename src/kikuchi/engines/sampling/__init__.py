"""Markov chains on factor graphs, several in lock step, and annealed importance sampling."""
