"""Posteriors of hidden units, one file a family: mean field, mixtures, chains, Gibbs, exact."""
