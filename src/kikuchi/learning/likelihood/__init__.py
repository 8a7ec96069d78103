"""Maximum likelihood and its bounds, with any inference method inside.

Gradient learning, EM and variational Bayes, the clamped phase, surrogate and bounded likelihoods.
"""
