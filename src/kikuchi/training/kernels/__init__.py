"""Compiled loops of the trainer: fused steps of gradient ascent over flat arrays."""
