"""Experiments of Welling and Hinton (2001): mean field Boltzmann machines on digits."""
