"""Forward-backward, most probable paths and densities of hidden Markov chains.

A chain with lag l has transitions from t - l to t: it is l ordinary chains that take turns, and
each loop below walks them one after the other. Probabilities are scaled at every step.
"""

from __future__ import annotations

import math

import numpy as np

from kikuchi.core.compiled import njit

_LOG_2PI = math.log(2.0 * math.pi)


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def forward_backward(start, transition, log_b, lag, backward, posterior, weights, counts):
    """Posterior of each state at each step, into `posterior`; answers (log-likelihood, failure).

    log_b[t, k] is the log-likelihood of step t in state k. Expected numbers of transitions go into
    `counts` (K, K), if it has room. Without `backward` the posterior is that of the filter.
    `weights` is workspace of the shape of `posterior`. The failure is the first step at which no
    state is possible, or -1.
    """
    steps, n = posterior.shape
    scale = np.empty(steps)
    total = 0.0
    prior, beta, v = np.empty(n), np.empty(n), np.empty(n)
    turned = np.ascontiguousarray(transition.T)
    for t in range(steps):
        row, w, out = log_b[t], weights[t], posterior[t]
        largest = -np.inf
        for k in range(n):
            largest = max(largest, row[k])
        if not largest > -np.inf:
            return -np.inf, t
        if t < lag:
            for k in range(n):
                prior[k] = start[k]
        else:
            before = posterior[t - lag]
            for j in range(n):
                s = 0.0
                for i in range(n):
                    s += before[i] * turned[j, i]
                prior[j] = s
        s = 0.0
        for k in range(n):
            w[k] = math.exp(row[k] - largest)
            out[k] = prior[k] * w[k]
            s += out[k]
        if not s > 0.0:  # possible states have tiny weights: again, among them alone
            largest = -np.inf
            for k in range(n):
                if prior[k] > 0.0:
                    largest = max(largest, row[k] + math.log(prior[k]))
            if not largest > -np.inf:
                return -np.inf, t
            for k in range(n):
                w[k] = 0.0
                out[k] = 0.0
                if prior[k] > 0.0:
                    out[k] = math.exp(row[k] + math.log(prior[k]) - largest)
                    w[k] = out[k] / prior[k]
                    s += out[k]
        inverse = 1.0 / s
        for k in range(n):
            out[k] *= inverse
        scale[t] = inverse
        total += largest + math.log(s)
    if not backward:
        return total, -1
    sums = len(counts) > 0
    for r in range(min(lag, steps)):
        last = r + (steps - 1 - r) // lag * lag
        for k in range(n):
            beta[k] = 1.0
        for t in range(last - lag, -1, -lag):
            w, inverse, alpha = weights[t + lag], scale[t + lag], posterior[t]
            for k in range(n):
                v[k] = w[k] * beta[k] * inverse
            if sums:
                for i in range(n):
                    a = alpha[i]
                    for j in range(n):
                        counts[i, j] += a * v[j]
            s = 0.0
            for i in range(n):
                x = 0.0
                for j in range(n):
                    x += transition[i, j] * v[j]
                beta[i] = x
                alpha[i] *= x
                s += alpha[i]
            inverse = 1.0 / s
            for i in range(n):
                alpha[i] *= inverse
    if sums:
        for i in range(n):
            for j in range(n):
                counts[i, j] *= transition[i, j]
    return total, -1


@njit(cache=True, error_model="numpy")
def viterbi(log_start, log_transition, log_b, path):
    """The most probable states, into `path`; answers its log-probability with the outputs."""
    steps, n = log_b.shape
    best, score = np.empty(n), np.empty(n)
    back = np.empty((steps, n), dtype=np.uint32)
    for k in range(n):
        best[k] = log_start[k] + log_b[0, k]
    for t in range(1, steps):
        for j in range(n):
            most, where = -np.inf, 0
            for i in range(n):
                x = best[i] + log_transition[i, j]
                if x > most:
                    most, where = x, i
            score[j] = most + log_b[t, j]
            back[t, j] = where
        best[:] = score
    state, top = 0, best[0]
    for k in range(1, n):
        if best[k] > top:
            state, top = k, best[k]
    path[steps - 1] = state
    for t in range(steps - 1, 0, -1):
        state = int(back[t, state])
        path[t - 1] = state
    return top


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def gaussian_log_densities(y, means, whiteners, log_norms, out):
    """out[t, k] = log N(y_t; means_k, ...) by lower whiteners W_k: |W_k (y - m_k)|^2."""
    steps, d = y.shape
    e = np.empty(d)
    for t in range(steps):
        row = y[t]
        for k in range(len(means)):
            m, white = means[k], whiteners[k]
            for i in range(d):
                e[i] = row[i] - m[i]
            total = 0.0
            for i in range(d):
                s = 0.0
                for j in range(i + 1):
                    s += white[i, j] * e[j]
                total += s * s
            out[t, k] = log_norms[k] - 0.5 * total


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def factorial_fields(outputs, projected, halves, chain, own, sizes, beliefs, fields):
    """Local fields of one chain of a factorial model with additive Gaussian outputs.

    With V = W C^-1: fields[t, k] = V_k . (y_t - sum of the expected contributions of the other
    chains) - W_k . V_k / 2, where `outputs` is W (all states of all chains, d), `projected` V and
    `halves` W . V / 2. `own` is y_t minus all expected contributions, kept up to date. Answers the
    sum over frames of the largest change of a field.
    """
    steps, d = own.shape
    first = 0
    for c in range(chain):
        first += sizes[c]
    n = sizes[chain]
    e, moved = np.empty(d), 0.0
    w, v, half = outputs[first : first + n], projected[first : first + n], halves[first : first + n]
    for t in range(steps):
        row, now, out = own[t], beliefs[t, first : first + n], fields[t]
        for i in range(d):
            e[i] = row[i]
        for k in range(n):
            b = now[k]
            if b > 0.0:
                for i in range(d):
                    e[i] += b * w[k, i]
        change = 0.0
        for k in range(n):
            s = -half[k]
            for i in range(d):
                s += v[k, i] * e[i]
            change = max(change, abs(s - out[k]))
            out[k] = s
        moved += change
    return moved


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def factorial_accept(outputs, chain, sizes, posterior, own, beliefs, fields):
    """Put new beliefs of a chain in place of the old ones; answers (largest change, sum of belief
    times field).
    """
    steps, d = own.shape
    first = 0
    for c in range(chain):
        first += sizes[c]
    change, product = 0.0, 0.0
    for t in range(steps):
        for k in range(sizes[chain]):
            new = posterior[t, k]
            delta = new - beliefs[t, first + k]
            product += new * fields[t, k]
            if delta != 0.0:
                beliefs[t, first + k] = new
                change = max(change, abs(delta))
                for i in range(d):
                    own[t, i] -= delta * outputs[first + k, i]
    return change, product


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "nnan"})
def single_frames(fields, constants, places, sizes, beliefs):
    """Probabilities of the states of each chain from each frame by itself; answers how much the
    chains depend on each other given a frame, on average over frames: their total correlation, the
    sum of the entropies of the chains minus that of all together, in nats.

    fields[t] are the parts of the log-weights of the states that depend on row t. constants[k, i]
    holds the part that does not, of state k of the last chain and combination i of states of the
    others, whose places among all states are places[i]. Combinations below exp(-30) of the best
    count as none.
    """
    steps, total = fields.shape
    last, count = constants.shape
    heads, tops = np.empty(count), np.empty(count)
    scores = np.empty((last, count))
    end, coupling = total - last, 0.0
    for t in range(steps):
        for k in range(total):
            beliefs[t, k] = 0.0
        _sums_of_chains(fields[t], sizes, heads)
        tops[:] = -np.inf
        for k in range(last):  # combinations inside: loops of a few states are slow
            s = fields[t, end + k]
            for i in range(count):
                x = constants[k, i] + heads[i] + s
                scores[k, i] = x
                tops[i] = max(tops[i], x)
        best = -np.inf
        for i in range(count):
            best = max(best, tops[i])
        weight, product = 0.0, 0.0
        for i in range(count):
            if tops[i] > best - 30.0:
                s = 0.0
                for k in range(last):
                    x = scores[k, i] - best
                    if x > -30.0:
                        w = math.exp(x)
                        s += w
                        product += w * x
                        beliefs[t, end + k] += w
                weight += s
                for c in range(places.shape[1]):
                    beliefs[t, places[i, c]] += s
        for k in range(total):
            beliefs[t, k] /= weight
        entropy = math.log(weight) - product / weight
        if entropy > 1e-6:  # of all chains together: at least what they can share
            coupling -= entropy
            for k in range(total):
                if beliefs[t, k] > 0.0:
                    coupling -= beliefs[t, k] * math.log(beliefs[t, k])
    return coupling / steps


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _sums_of_chains(fields, sizes, heads):
    """Sums of the fields of one state of each chain but the last, of all combinations of states."""
    done, first = 1, 0
    heads[0] = 0.0
    for c in range(len(sizes) - 1):
        for head in range(done - 1, -1, -1):
            s = heads[head]
            for k in range(sizes[c]):
                heads[head * sizes[c] + k] = s + fields[first + k]
        done *= sizes[c]
        first += sizes[c]


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def frame_messages(weights, sizes, cavities, beliefs, masses):
    """Beliefs of each chain's state at each frame, from what the chains say about it without the
    frame (cavities) and the frame's likelihood.

    weights[t, i] is the likelihood of combination i of states (the last chain fastest); masses[t]
    gets the sum of likelihood times cavities.
    """
    steps, total = cavities.shape
    chains, combinations = len(sizes), weights.shape[1]
    first, at = np.empty(chains, dtype=np.int64), np.empty(chains, dtype=np.int64)
    last = sizes[chains - 1]
    first[0] = 0
    for c in range(1, chains):
        first[c] = first[c - 1] + sizes[c - 1]
    end = first[chains - 1]
    for t in range(steps):
        row, out = cavities[t], beliefs[t]
        tail = row[end : end + last]
        for k in range(total):
            out[k] = 0.0
        at[:] = 0
        mass = 0.0
        for block in range(combinations // last):
            p = 1.0
            for c in range(chains - 1):
                p *= row[first[c] + at[c]]
            if p > 0.0:
                f = weights[t, block * last : (block + 1) * last]
                s = 0.0
                for k in range(last):
                    x = f[k] * tail[k]
                    s += x
                    out[end + k] += p * x
                s *= p
                mass += s
                for c in range(chains - 1):
                    out[first[c] + at[c]] += s
            for c in range(chains - 2, -1, -1):
                at[c] += 1
                if at[c] < sizes[c]:
                    break
                at[c] = 0
        masses[t] = mass
        if mass > 0.0:
            inverse = 1.0 / mass
            for k in range(total):
                out[k] *= inverse
