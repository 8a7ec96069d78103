"""Inference methods: one module each, with its options, the problem that it solves and how the
result is read off an engine. Every method returns `Beliefs`.
"""
