"""Weighted mini-buckets (`wmb`): certified upper and lower bounds on log Z.

The plan of mini-buckets, both bounds with their gradients, and the search over cost shifts and
weights.
"""
