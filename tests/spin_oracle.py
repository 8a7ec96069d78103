"""Spin models by listing every state, written apart from the library."""

from __future__ import annotations

from itertools import product

import numpy as np

import kikuchi as kk


def random_spins(seed: int, n: int = 6, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Couplings N(0, scale^2) between all pairs, fields N(0, 1/4)."""
    rng = np.random.default_rng(seed)
    j = np.triu(rng.normal(0.0, scale, (n, n)), 1)
    return j + j.T, rng.normal(0.0, 0.5, n)


def all_states(n: int) -> np.ndarray:
    return np.array(list(product((-1.0, 1.0), repeat=n)))


def weights(j: np.ndarray, h: np.ndarray) -> np.ndarray:
    s = all_states(len(h))
    return 0.5 * np.einsum("si,ij,sj->s", s, j, s) + s @ h


def gibbs_free_energy(j: np.ndarray, h: np.ndarray, m: np.ndarray) -> float:
    """G(m) = min {-E[log weight] - entropy : means m}, exactly.

    The minimum is a distribution with the same couplings and other fields; they are found by
    Newton's method on the convex log Z(f) - f'm.
    """
    s = all_states(len(h))
    pair = 0.5 * np.einsum("si,ij,sj->s", s, j, s)
    f = np.arctanh(m)
    for _ in range(100):
        p = np.exp(pair + s @ f - np.max(pair + s @ f))
        p /= p.sum()
        mean = p @ s
        f = f - np.linalg.solve((s * p[:, None]).T @ s - np.outer(mean, mean), mean - m)
        if np.abs(mean - m).max() < 1e-14:
            break
    p = np.exp(pair + s @ f - np.max(pair + s @ f))
    p /= p.sum()
    assert np.abs(p @ s - m).max() < 1e-11
    return float(p @ np.log(p) - p @ pair - h @ (p @ s))


HALVINGS = (0.04, 0.02, 0.01)  # of the couplings: errors show their order, and are above rounding


def slopes(errors: list[float]) -> np.ndarray:
    """log2 of the ratios of errors at couplings that halve."""
    values = np.array(errors)
    return np.log2(values[:-1] / values[1:])


def error_slopes(text: str, seeds: int = 6) -> dict[str, np.ndarray]:
    """Orders of the mean errors of a method, over several models: in one the sign may change."""
    log_z, marginals = [], []
    for scale in HALVINGS:
        found = []
        for seed in range(seeds):
            j, h = random_spins(seed)
            graph = kk.ising(scale * j, h)
            exact, answer = kk.infer(graph, "enumerate"), kk.infer(graph, text)
            wrong = np.abs(answer.flat_marginals - exact.flat_marginals).mean()
            found.append((abs(answer.log_z - exact.log_z), wrong))
        mean = np.mean(found, axis=0)
        log_z.append(float(mean[0]))
        marginals.append(float(mean[1]))
    return {"log_z": slopes(log_z), "marginals": slopes(marginals)}
