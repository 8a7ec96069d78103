"""What every method, learner and estimator promises, tested from registries and declarations."""
