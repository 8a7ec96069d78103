"""Noisy ICA by variational Bayes: source posteriors, updates, the estimator `BayesianICA`."""
