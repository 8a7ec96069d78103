"""Source priors of mean field ICA behind one interface.

Closed forms, mixtures of Gaussians, densities by quadrature, and priors given by a mean function.
"""
