"""Boltzmann machines as scikit-learn estimators, over one base; the classifier of free energies."""
