"""Inference over factor graphs: one module a method, every one answers with `Beliefs`."""
