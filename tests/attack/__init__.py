"""Attacks: seeded searches for inputs and moments at which the library breaks a promise.

Each module has `attack(count, seed, seconds)`, which tries up to `count` cases within `seconds` and
answers with a `Tally`. `make test-attack` runs all of them in full; `make test` a short part.
"""
