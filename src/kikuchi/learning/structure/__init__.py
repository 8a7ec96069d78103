"""The structure of a model from data: trees, edges, cliques, features and their induction."""
