"""Variational methods that bound log Z from below.

Naive (`mf`), structured (`tree-mf`) and mixture (`mixture-mf`) mean field; clamping, which tightens
any bound (`clamp`).
"""
