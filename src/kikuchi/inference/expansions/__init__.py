"""Expansions of the free energy of binary pairwise models.

Plefka and TAP (`plefka`, `tap`), adaptive TAP (`adatap`), the saddle point (`saddle`), and
covariances by linear response.
"""
