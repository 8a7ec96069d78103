"""Learning rules of machines: one module per way of estimating the gradient.

Exact, sampled (contrastive divergence and relatives), mean field, mixtures, contrastive free
energies, pseudo-likelihood, linear response.
"""
