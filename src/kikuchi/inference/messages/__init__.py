"""Message passing on factor graphs, with edge weights, steps and clamped marginals.

Belief propagation (`bp`), its reweighted relatives (`trw`, `alpha`, `fractional`), belief
optimisation (`bo`), and observed marginals (`loopy-is`, `ups`, `ups-t`, `is`, `gis`).
"""
