"""Markov chain Monte Carlo on factor graphs.

Gibbs sampling (`gibbs`) with several chains in lock step, and its diagnostics.
"""
