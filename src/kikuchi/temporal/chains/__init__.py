"""Hidden Markov chains: one, or several in parallel that may skip frames, with any emissions."""
