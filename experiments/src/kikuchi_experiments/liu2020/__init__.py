"""Experiments of Liu (2020): accuracy on graphs, alpha-BP, detection, learning."""
