"""Noiseless ICA by maximum likelihood: densities, objective, the estimator `InfomaxICA`."""
