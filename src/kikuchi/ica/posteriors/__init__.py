"""Posteriors of the sources given mixing and noise.

Naive mean field, linear response, adaptive TAP, and exact enumeration of discrete sources.
"""
