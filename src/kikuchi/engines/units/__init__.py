"""Units with dense weights and fields: spins and bits of pairwise models."""
