"""Engines: arrays in, arrays out, without options, texts, results or files.

Each folder holds one kind of computation with its compiled loops: `messages` (message passing with
weights, steps and clamped marginals), `trees` (junction trees), `regions`, `mean_field`,
`mini_buckets`, `sampling`, `sites` (Gaussians with non-Gaussian sites), `units` (dense weights and
fields) and `response` (linear response of fixed points). `loops` drives what is iterative, `tables`
knows strides, and `run` holds the clock and the solution that an engine ends with.
"""
