"""Maximum entropy by scaling.

IPF, GIS, IIS and UPS on junction trees, loopy iterative scaling on regions, and the target
marginals that all of them match.
"""
