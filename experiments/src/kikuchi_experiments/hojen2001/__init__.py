"""Experiments of Højen-Sørensen (2001): mean field ICA on simulations, sounds, digits and scans."""
