"""Experiments of Teh (2003): lattices, unified propagation and scaling, digits, faces."""
