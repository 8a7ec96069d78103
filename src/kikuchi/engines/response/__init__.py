"""Linear response: how the marginals of a fixed point move with fields and tables."""
