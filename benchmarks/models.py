"""Seeded models of the kinds that inference competitions use, to judge `auto` by.

Tables are drawn; what matters for the cost of exact inference is their shape: pedigrees with
several loci, objects that all depend on each other, diagnosis with noisy causes.
"""

from __future__ import annotations

import itertools

import numpy as np

import kikuchi as kk

Factor = tuple[tuple[int, ...], np.ndarray]


def linkage(people: int, loci: int, alleles: int, seed: int = 0) -> kk.FactorGraph:
    """Genotypes of a pedigree at linked loci: families of one to four children, in which one parent
    is a child of an earlier family and the other, mostly, a stranger.

    Each person has two alleles at each locus; which of a parent's two a child takes is told by a
    selector, and selectors of neighbouring loci agree unless there was a recombination. Of a third
    of the people the pair of alleles is seen, without the order; noise keeps all of it possible.
    """
    rng = np.random.default_rng(seed)
    parents = _families(people, rng)
    number = itertools.count()
    allele = {(p, s, k): next(number) for p in range(people) for k in range(loci) for s in (0, 1)}
    first_selector = len(allele)
    selector = {(p, s, k): next(number) for p in parents for k in range(loci) for s in (0, 1)}
    cards = [alleles] * first_selector + [2] * len(selector)
    factors: list[Factor] = []
    taken = np.zeros((2, alleles, alleles, alleles))
    for which, a, b in itertools.product((0, 1), range(alleles), range(alleles)):
        taken[which, a, b, a if which == 0 else b] = 1.0
    for locus in range(loci):
        frequencies = rng.dirichlet(np.full(alleles, 2.0))
        recombination = rng.uniform(0.02, 0.3)
        linked = np.full((2, 2), recombination) + (1 - 2 * recombination) * np.eye(2)
        for person in range(people):
            pair = allele[person, 0, locus], allele[person, 1, locus]
            if person not in parents:
                factors += [((v,), frequencies) for v in pair]
            else:
                for side in (0, 1):
                    parent, chosen = int(parents[person][side]), selector[person, side, locus]
                    scope = (chosen, allele[parent, 0, locus], allele[parent, 1, locus], pair[side])
                    factors.append((scope, taken))
                    if locus:
                        factors.append(((selector[person, side, locus - 1], chosen), linked))
            if rng.random() < 1 / 3:
                seen = rng.choice(alleles, 2, p=frequencies)
                likely = np.full((alleles, alleles), 0.02)
                likely[seen[0], seen[1]] = likely[seen[1], seen[0]] = 1.0
                factors.append((pair, likely))
    return kk.FactorGraph(cards, factors)


def _families(people: int, rng: np.random.Generator) -> dict[int, tuple[int, int]]:
    """The parents of everybody who has some; a tenth of the couples are related."""
    parents: dict[int, tuple[int, int]] = {}
    children, count = [0, 1], 2
    while count < people:
        mother = int(rng.choice(children[-12:]))
        related = [v for v in children if v != mother and rng.random() < 0.1]
        father = related[-1] if related and rng.random() < 0.1 else count
        count += father == count
        for child in range(count, min(count + int(rng.integers(1, 5)), people)):
            parents[child] = mother, father
            children.append(child)
            count += 1
    return parents


def detection(objects: int, states: int, degree: float, seed: int = 0) -> kk.FactorGraph:
    """Objects with many states each, joined in pairs at random, `degree` pairs each on average."""
    probability = min(degree / (objects - 1), 1.0)
    return kk.generate.random_graph(
        objects, probability, states=states, coupling=0.7, field=1.0, seed=seed
    )


def diagnosis(diseases: int, findings: int, causes: int, seed: int = 0) -> kk.FactorGraph:
    """Rare diseases and findings that each is a noisy-or of some; all findings are seen."""
    rng = np.random.default_rng(seed)
    factors: list[Factor] = [
        ((v,), np.array([1 - p, p])) for v, p in enumerate(rng.uniform(0.01, 0.2, diseases))
    ]
    for _ in range(findings):
        scope = tuple(int(v) for v in np.sort(rng.choice(diseases, causes, replace=False)))
        absent = np.ones((2,) * causes) * 0.98
        for axis, strength in enumerate(rng.uniform(0.3, 0.95, causes)):
            shape = [1] * causes
            shape[axis] = 2
            absent = absent * np.array([1.0, 1 - strength]).reshape(shape)
        factors.append((scope, 1 - absent if rng.random() < 0.4 else absent))
    return kk.FactorGraph([2] * diseases, factors)
