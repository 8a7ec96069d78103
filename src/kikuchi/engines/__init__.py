"""Engines: arrays in, arrays out, without options, texts, results or files.

`loops` drives what is iterative: states, fixed points and how a run ends. `tables` knows strides:
where the entries of one table lie in another.
"""
