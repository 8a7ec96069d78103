"""Discrete models as data: factor graphs, directed models, generators and file formats."""
