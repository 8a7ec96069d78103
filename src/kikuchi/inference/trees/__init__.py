"""Exact inference.

Junction trees (`jt`): planning, layout, propagation, samples; and enumeration of all states
(`enumerate`).
"""
