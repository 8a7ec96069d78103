"""Small worked examples of the documents: symmetry breaking, jurors, a Gaussian asymmetry."""
