from kikuchi.graphs.canonical import deterministic as deterministic
from kikuchi.graphs.canonical import noisy_max as noisy_max
from kikuchi.graphs.canonical import noisy_or as noisy_or
from kikuchi.graphs.pairwise import to_pairwise as to_pairwise
