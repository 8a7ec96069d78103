"""The sweeps of the double loop, linearised at its fixed point.

Logarithms of the root tables change by `change`, messages by `messages`, logarithms of the common
beliefs by `common` (laid out as all tables, from the first inner region on). Where the double loop
takes the marginal of a table, its derivative takes the conditional expectation of the change.
"""

from __future__ import annotations

import numpy as np

from kikuchi.core.compiled import njit

_U1 = np.uint64(1)


@njit(cache=True, error_model="numpy")
def gather(links, around, messages, common, change):
    """Add to the changes of the roots what messages and tangents make of them."""
    table_at, large, _, map_at, maps = links
    inner, link_at, inner_links, message_at, _, concave = around
    base = table_at[inner[0]] if inner.size else np.uint64(0)
    for k in range(np.uint64(inner.size)):
        begin = table_at[inner[k]] - base
        states = table_at[inner[k] + _U1] - table_at[inner[k]]
        lo = link_at[k]
        for j in range(link_at[k + _U1] - lo):
            link = inner_links[lo + j]
            first, end = table_at[large[link]], table_at[large[link] + _U1]
            place = message_at[k] + j * states
            for i in range(end - first):
                x = maps[map_at[link] + i]
                change[first + i] += messages[place + x] + concave[k] * common[begin + x]


@njit(cache=True, error_model="numpy")
def sweep(links, around, b, messages, common, change, work):
    """One sweep of `kernels.regions.scale` to first order; changes everything in place."""
    table_at, large, _, map_at, maps = links
    inner, link_at, inner_links, message_at, weight, _ = around
    base = table_at[inner[0]] if inner.size else np.uint64(0)
    for k in range(np.uint64(inner.size)):
        own = table_at[inner[k]]
        begin = own - base
        states = table_at[inner[k] + _U1] - own
        lo = link_at[k]
        count = link_at[k + _U1] - lo
        agreed = work[count]
        for x in range(states):
            agreed[x] = 0.0
        for j in range(count):
            link = inner_links[lo + j]
            first, end = table_at[large[link]], table_at[large[link] + _U1]
            mean = work[j]
            for x in range(states):
                mean[x] = 0.0
            for i in range(end - first):
                mean[maps[map_at[link] + i]] += b[first + i] * change[first + i]
            total = 0.0
            for x in range(states):
                total += mean[x]
            for x in range(states):
                mean[x] = mean[x] / b[own + x] - total if b[own + x] > 0.0 else 0.0
                agreed[x] += mean[x] - messages[message_at[k] + j * states + x]
        exponent = 1.0 / (float(count) + weight[k])
        total = 0.0
        for x in range(states):
            agreed[x] *= exponent
            total += b[own + x] * agreed[x]
        for x in range(states):
            agreed[x] -= total
            common[begin + x] = agreed[x] if b[own + x] > 0.0 else 0.0
        for j in range(count):
            link = inner_links[lo + j]
            first, end = table_at[large[link]], table_at[large[link] + _U1]
            for x in range(states):
                step = agreed[x] - work[j, x] if b[own + x] > 0.0 else 0.0
                messages[message_at[k] + j * states + x] += step
                work[j, x] = step
            for i in range(end - first):
                change[first + i] += work[j, maps[map_at[link] + i]]
