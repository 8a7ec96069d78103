"""Linear Gaussian state spaces: parameters, inference in three forms, learning, the estimator."""
