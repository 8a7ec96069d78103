"""Message passing on factor graphs, with edge weights, steps and clamped marginals."""
