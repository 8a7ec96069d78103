"""Free energies over region graphs.

Generalised belief propagation (`gbp`) and the convergent minimisation of a Kikuchi free energy
(`kikuchi`), both on the region engine.
"""
