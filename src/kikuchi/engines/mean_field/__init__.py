"""Mean field of single variables, of trees inside the graph, and of mixtures of products."""
