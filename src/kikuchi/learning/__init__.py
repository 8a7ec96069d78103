"""Learning the parameters of discrete models from rows of data, with any inference inside."""
