"""Whether channels differ in their noise: what noise "auto" means, for every posterior.

A fit begins with one variance for all channels. The score test at that fit estimates what a
variance for each channel would add to the log-likelihood; BIC decides whether it is worth the
additional parameters.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.ica.em import Rules, expectation
from kikuchi.ica.model import Model, Observations, deviations
from kikuchi.ica.noise import restore_noise
from kikuchi.ica.posteriors.posterior import Posterior
from kikuchi.ica.scoring import evaluate, has_information

_MOST_CHANNELS = 300  # between which the information is computed
_OPEN = 0.25  # of the gain that BIC requires: above it, more samples are looked at


def channels_differ(
    model: Model,
    data: Observations,
    posterior: Posterior,
    rules: Rules,
    more: Observations | None = None,
) -> bool:
    """Return whether BIC prefers a variance for each channel to one for all.

    Where `data` leave that open, the test is repeated on `more` samples.
    """
    gain = _gain(model, data, posterior, rules)
    if more is not None and _OPEN < gain <= 1.0 and more.count > data.count:
        gain = _gain(model, more, posterior, rules)
    return gain > 1.0


def with_channel_variances(model: Model, variances: Array | None = None) -> Model:
    """The model with a variance for each channel: these, or those that it has."""
    floor = np.asarray(model.noise.floor)
    variances = model.noise.channel_variances(model.channels) if variances is None else variances
    noise = restore_noise("diagonal", np.maximum(variances, floor), floor, True)
    return replace(model, noise=noise)


def _gain(model: Model, data: Observations, posterior: Posterior, rules: Rules) -> float:
    """What a variance for each channel adds to the log-likelihood, over what BIC requires."""
    own = with_channel_variances(model)
    free = rules.mixing == "free" and rules.mixing_prior.beta == 0
    if free and has_information(model.sources, data):
        gain = _gain_with_mixing(own, data, posterior, rules)
    else:
        gain = _gain_of_noise(own, data, posterior)
    return data.count * gain / ((data.channels - 1) * math.log(data.count))


def _gain_with_mixing(own: Model, data: Observations, posterior: Posterior, rules: Rules) -> float:
    """Per sample and doubled, when mixing and variances move together."""
    now = evaluate(own, data, posterior, None, rules.mixing_prior)
    size = own.mixing.size
    merge = np.zeros((size + 1, size + data.channels))  # one variance moves all of them
    merge[:size, :size], merge[size, size:] = np.eye(size), 1.0
    together = merge @ now.information @ merge.T
    same = replace(now, gradient=merge @ now.gradient, information=together)
    less, more = (float(e.gradient @ e.solve(e.gradient)) for e in (same, now))
    return more - less


def _gain_of_noise(own: Model, data: Observations, posterior: Posterior) -> float:
    """The same with the mixing held fixed, which is never more, for constrained mixing and many
    channels: the information is that of a Gaussian with the covariance of the model.
    """
    statistics, _ = expectation(own, data, posterior, "none")
    variances = own.noise.channel_variances(own.channels)
    seen = statistics.counts / data.count
    gradient = 0.5 * (statistics.channel_residuals(own.mixing) / variances / data.count - seen)
    scaled = own.mixing / np.sqrt(variances)[:, None] * deviations(own.priors)
    span, lengths, _ = np.linalg.svd(scaled, full_matrices=False)
    explained = span * (lengths / np.sqrt(1.0 + lengths**2))
    if own.channels > _MOST_CHANNELS:  # each says little of the others
        known = 0.5 * seen * (1.0 - np.einsum("di,di->d", explained, explained)) ** 2
        each = float(np.sum(gradient**2 / np.maximum(known, 1e-12)))
        return each - float(gradient.sum()) ** 2 / float(known.sum())
    precision = np.eye(own.channels) - explained @ explained.T
    information = 0.5 * precision**2 * np.sqrt(np.outer(seen, seen))
    each = float(gradient @ np.linalg.lstsq(information, gradient, rcond=1e-12)[0])
    return each - float(gradient.sum()) ** 2 / float(information.sum())
