"""Training shared by all families: `Trainable` models, rules that estimate gradients, optimisers,
the trainer, checkpoints and the scikit-learn interface. A family adds its model, its rules and its
options; `docs/how-to/new-family.md` shows a complete one.
"""
