"""Mini-buckets: plans, both bounds on log Z with their gradients, and the search over them."""
