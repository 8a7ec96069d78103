"""Learning without a partition function.

Pseudo-likelihood, piecewise, contrastive divergence and its relatives, one-shot linear response.
"""
