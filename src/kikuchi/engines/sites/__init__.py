"""Gaussians with non-Gaussian sites: moments of tilted densities, and expectation propagation.

A site is a density or likelihood of one linear function of a Gaussian variable. A Gaussian factor
exp(g f - L f^2 / 2) stands in its place.
"""
