"""Inference methods: each module contains the options of a method, the problem that it solves and
the construction of its result from an engine. Every method returns `Beliefs`.
"""
