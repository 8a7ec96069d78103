"""What every family trains with: `Trainable` models, rules that estimate gradients, optimisers, the
trainer, checkpoints and the scikit-learn shell. A family adds its model, its rules and its options;
`docs/how-to/new-family.md` shows a complete one.
"""
