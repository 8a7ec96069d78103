"""Hybrid Monte Carlo in the double well p(x) ∝ exp(-kappa (x² - alpha²)² / 2) (HOJ-E0)."""

from __future__ import annotations

from kikuchi.core.compiled import njit


@njit(cache=True, error_model="numpy")
def hybrid_chains(
    kappa, alpha, momenta, log_uniforms, x, steps, step_size, discard, total, squares
):
    """Run chains from `x`, one per column of random numbers; return how many proposals they accept.

    `total` and `squares` gather x and x² of the samples after the first `discard`.
    """
    samples, chains = momenta.shape
    edge = alpha * alpha
    accepted = 0
    for c in range(chains):
        here = x[c]
        for s in range(samples):
            there = here
            p = momenta[s, c] - step_size * kappa * there * (there * there - edge)
            for step in range(steps):
                there += step_size * p
                push = 2.0 * step_size * kappa * there * (there * there - edge)
                p -= push if step < steps - 1 else 0.5 * push
            depth = (there * there - edge) ** 2 - (here * here - edge) ** 2
            gain = -0.5 * kappa * depth - 0.5 * (p * p - momenta[s, c] ** 2)
            if log_uniforms[s, c] < gain:
                here = there
                accepted += 1
            if s >= discard:
                total[c] += here
                squares[c] += here * here
        x[c] = here
    return accepted
