"""Names that other libraries, and other families, use for options of our estimators.

The errors of Python and of the command line read this table. It is a module of its own because the
command line reads it without loading scikit-learn.
"""

from __future__ import annotations

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "n_components": ("n_states", "hidden_layer_sizes"),
    "n_hidden": ("n_components", "hidden_layer_sizes"),
    "n_sources": ("n_components",),
    "n_features": ("n_components",),
    "n_latent": ("n_components",),
    "n_clusters": ("n_components", "n_states"),
    "hidden": ("hidden_layer_sizes", "n_components"),
    "layers": ("hidden_layer_sizes",),
    "hidden_units": ("hidden_layer_sizes", "n_components"),
    "states": ("n_states",),
    "chains": ("n_states",),
    "state": ("n_components",),
    "components": ("n_mix", "n_components"),
    "sources": ("n_components",),
    "covariance": ("covariance_type",),
    "n_iter": ("max_iter",),
    "n_epochs": ("max_iter",),
    "epochs": ("max_iter",),
    "max_epochs": ("max_iter",),
    "max_iterations": ("max_iter",),
    "rounds": ("max_iter",),
    "passes": ("max_iter",),
    "cycles": ("max_iter",),
    "inner_iterations": ("inner_max_iter",),
    "restarts": ("n_init",),
    "networks": ("n_init",),
    "n_starts": ("n_init",),
    "optimiser": ("solver",),
    "optimizer": ("solver",),
    "algorithm": ("solver", "learner"),
    "rule": ("learner",),
    "scheme": ("posterior",),
    "form": ("arithmetic", "density"),
    "density": ("prior",),
    "learning_rate_init": ("learning_rate",),
    "alpha": ("weight_decay",),
    "fun": ("prior",),
    "init_params": ("start",),
    "init": ("start",),
    "n_jobs": ("processes", "threads"),
    "seed": ("random_state",),
}
"""The other name, and our names for it: the first that an estimator has is meant."""
