r"""A message network: belief propagation with learnt corrections, trained on a user's own models.

For spins, BP's message is bp = atanh(tanh J tanh h) of the cavity field h, or half of
log cosh(J + h) - log cosh(J - h), which stays right where J and h are large. The network mixes it
with the old message and scales it, new = bp + a (old - bp) + c bp, by two small numbers a and c
that a shared network reads off the sizes of J, of the fields and of both messages. Corrections act
on the edges of the graph's 2-core only: on trees the update *is* belief propagation, whatever the
weights, so its fixed points are kept. Turning all fields turns all answers. Graphs are padded to
powers of two: one compilation per bucket, none per graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kikuchi.core.arrays import Array, Ints
from kikuchi.core.budget import Budget
from kikuchi.core.errors import DataError, KikuchiError, MethodError, ModelError
from kikuchi.core.extras import extras_named
from kikuchi.core.numerics import entropy
from kikuchi.graphs.binary import binary_pairwise_fault, spin_factors
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.beliefs import Beliefs
from kikuchi.methods.method import Method
from kikuchi.methods.registry import parse_method
from kikuchi.training.model import PytreeModel
from kikuchi.training.rule import LossRule
from kikuchi.training.trainer import Validation, train

_LEAST = 64  # nodes and directed edges of the smallest bucket
_HIDDEN = 16
_UPPER_SWEEPS = 20  # of the tree-reweighted bound in an answer's bracket


class PaddedSpins(NamedTuple):
    """A spin model in padded arrays: directed edges with their reverses, and the fields."""

    coupling: Any  # 32 bits, as all arrays here
    source: Any
    target: Any
    reverse: Any
    corrected: Any
    field: Any
    present: Any


def padded_spins(graph: FactorGraph) -> PaddedSpins:
    """A binary pairwise graph with positive tables, padded to powers of two.

    Parameters
    ----------
    graph : FactorGraph
        The model.

    >>> import kikuchi as kk
    >>> spins = padded_spins(kk.grid(3, 3, seed=0))
    >>> spins.coupling.shape, spins.field.shape, int(spins.corrected.sum())
    ((64,), (64,), 24)
    """
    factors = spin_factors(graph)
    if factors is None:
        fault = binary_pairwise_fault(graph) or "a table has zeros"
        raise ModelError(f"a message network takes positive tables over pairs of bits: {fault}")
    n, m = graph.n_variables, len(factors.couplings)
    first = graph.scopes[factors.pair_edges].astype(np.int64)
    second = graph.scopes[factors.pair_edges + 1].astype(np.int64)
    nodes, edges = _bucket(n + 1), _bucket(2 * m)
    source, target = np.full(edges, nodes - 1), np.full(edges, nodes - 1)
    source[: 2 * m] = np.concatenate([first, second])
    target[: 2 * m] = np.concatenate([second, first])
    reverse = np.arange(edges)
    reverse[: 2 * m] = np.concatenate([m + np.arange(m), np.arange(m)])
    core = _two_core(n, first, second)
    coupling, corrected = np.zeros(edges), np.zeros(edges)
    coupling[: 2 * m] = np.tile(factors.couplings, 2)
    corrected[: 2 * m] = np.tile(core[first] & core[second], 2)
    field, present = np.zeros(nodes), np.zeros(nodes)
    field[:n] = 0.5 * factors.fields
    present[:n] = 1.0
    floats = [part.astype(np.float32) for part in (coupling, corrected, field, present)]
    numbers = [part.astype(np.int32) for part in (source, target, reverse)]
    return PaddedSpins(floats[0], *numbers, *floats[1:])


def _bucket(size: int) -> int:
    return max(_LEAST, 1 << max(size - 1, 0).bit_length())


def _two_core(n: int, first: Ints, second: Ints) -> Any:
    """Variables that are left when variables of fewer than two neighbours are taken away."""
    kept = np.ones(n, dtype=bool)
    while True:
        inside = kept[first] & kept[second]
        degree = np.bincount(first[inside], minlength=n) + np.bincount(second[inside], minlength=n)
        fewer = kept & (degree >= 2)
        if np.array_equal(fewer, kept):
            return kept
        kept = fewer


class MessageNetwork(PytreeModel):
    """Belief propagation with learnt corrections; `train_messages` makes one.

    Parameters
    ----------
    parameters
        Weights by name.
    facts
        `iterations`, how many rounds of messages an answer takes.
    """

    kind: ClassVar[str] = "message network"
    batch_dtype = None

    def infer(
        self, graph: FactorGraph, *, iterations: int | None = None, bracket: bool = True
    ) -> Beliefs:
        """Marginals, the Bethe log Z of the beliefs, and certified bounds beside it.

        Parameters
        ----------
        graph : FactorGraph
            A binary pairwise model with positive tables.
        iterations : int, optional
            Rounds of messages; those of the training unless given.
        bracket : bool, default True
            Whether log Z is bounded, below by mean field at these marginals, above by a few sweeps
            of the tree-reweighted bound. The bounds are valid whatever the output of the network.
        """
        clock = Budget().start()
        rounds = _checked_rounds(self.facts["iterations"] if iterations is None else iterations)
        spins = padded_spins(graph)
        messages = np.asarray(_compiled().run(self.parameters, rounds, *spins), dtype=np.float64)
        marginals, log_z = _reading(graph, messages)
        lower = _mean_field_bound(graph, marginals) if bracket else None
        upper = None
        if bracket:
            method = parse_method(f"trw:max_iter={_UPPER_SWEEPS}")
            upper = method.run(graph).log_z_upper
        if not np.all(np.isfinite(marginals)):
            raise KikuchiError("the message network answered numbers that are not finite")
        return Beliefs(
            graph=graph,
            method="message network",
            flat_beliefs=marginals,
            log_z=log_z,
            log_z_lower=lower,
            log_z_upper=upper,
            converged=False,
            iterations=rounds,
            seconds=clock.seconds,
            stopped="iterations",
            warnings=("a network's answer: the bounds on log Z hold, the marginals are a guess",),
        )


def train_messages(
    generator: Callable[[int], FactorGraph],
    graphs: int = 200,
    *,
    method: str | Method = "auto",
    iterations: int = 15,
    max_iter: int = 30,
    batch_size: int = 20,
    rate: float = 0.01,
    seed: int = 0,
) -> MessageNetwork:
    """Train a message network on graphs of a generator, labelled by a method.

    Parameters
    ----------
    generator : Callable[[int], FactorGraph]
        Makes a graph from a seed; graphs of one bucket each train best.
    graphs : int, default 200
        How many are made; a fifth of them is held out, and the best epoch on it is kept.
    method : str or Method, default "auto"
        Labels the marginals; refused where it has not converged.
    iterations : int, default 15
        Rounds of messages.
    max_iter, batch_size, rate
        Settings of the training by Adam.
    seed : int, default 0
        Seed of the graphs (seed, seed + 1, ...), the first weights and the batches.

    >>> import kikuchi as kk
    >>> net = train_messages(lambda s: kk.grid(3, 3, seed=s), 10, max_iter=2, batch_size=4)
    >>> net.infer(kk.grid(4, 4, seed=99)).flat_marginals.shape
    (32,)
    """
    if graphs < 5:
        raise DataError(f"at least 5 graphs are needed, a fifth is held out; got {graphs}")
    _checked_rounds(iterations)
    chosen = parse_method(method)
    rows = [_labelled(generator(seed + k), chosen) for k in range(graphs)]
    sizes = [max(len(part) for part in column) for column in zip(*rows, strict=True)]
    data = tuple(
        np.stack([_widened(part, size) for part in column])
        for size, column in zip(sizes, zip(*rows, strict=True), strict=True)
    )
    held = max(1, graphs // 5)
    start = MessageNetwork(_first_weights(seed), {"iterations": iterations})
    rule = LossRule(_compiled().losses(iterations))
    done = train(
        start,
        tuple(part[held:] for part in data),
        rule,
        optimiser=f"adam:learning_rate={rate}",
        epochs=max_iter,
        batch_size=batch_size,
        seed=seed,
        validation=Validation(tuple(part[:held] for part in data), patience=max_iter),
    )
    return done.model


def _checked_rounds(iterations: int) -> int:
    if iterations != int(iterations) or iterations < 1:
        raise MethodError(f"iterations must be an integer of at least 1, got {iterations!r}")
    return int(iterations)


def _labelled(graph: FactorGraph, method: Method) -> tuple[Any, ...]:
    answer = method.run(graph)
    if not answer.converged:
        raise KikuchiError(
            f"{method.text} did not converge on a graph of the generator, and labels must be "
            "trusted; use smaller graphs or another method"
        )
    spins = padded_spins(graph)
    labels = np.full(len(spins.field), 0.5, dtype=np.float32)
    labels[: graph.n_variables] = answer.flat_marginals[1::2]
    return (*spins, labels)


def _widened(part: Any, size: int) -> Any:
    if len(part) != size:
        raise DataError(
            f"graphs of the generator fall into buckets of {len(part)} and {size} entries; make "
            "graphs of about one size, networks answer any size afterwards"
        )
    return part


def _first_weights(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    inner = 0.3 * rng.standard_normal((6, _HIDDEN))
    outer = 0.1 * rng.standard_normal((_HIDDEN, 2))
    values = {"in": inner, "bias": np.zeros(_HIDDEN), "out": outer, "end": np.array([-1.0, 0.0])}
    return {name: value.astype(np.float32) for name, value in values.items()}


# ---------------------------------------------------------------------- in JAX


class _MessageFunctions(NamedTuple):
    run: Any
    losses: Callable[[int], Any]


_made: list[_MessageFunctions] = []


@extras_named()
def _compiled() -> _MessageFunctions:
    """The functions in JAX, made once, so that each bucket is compiled once."""
    if _made:
        return _made[0]
    import jax
    import jax.numpy as jnp

    def cavities(messages: Any, spins: PaddedSpins) -> Any:
        total = spins.field + jnp.zeros_like(spins.field).at[spins.target].add(messages)
        return total, total[spins.source] - messages[spins.reverse]

    def update(weights: Any, messages: Any, spins: PaddedSpins) -> Any:
        _, cavity = cavities(messages, spins)
        alike, unlike = spins.coupling + cavity, spins.coupling - cavity
        bp = 0.5 * (jnp.logaddexp(alike, -alike) - jnp.logaddexp(unlike, -unlike))
        parts = (messages, bp, cavity, spins.coupling, messages * bp, bp - messages)
        even = [jnp.tanh(jnp.abs(x)) if k != 4 else jnp.tanh(x) for k, x in enumerate(parts)]
        hidden = jnp.tanh(jnp.stack(even, axis=1) @ weights["in"] + weights["bias"])
        mix, scale = (hidden @ weights["out"] + weights["end"]).T
        moved = jax.nn.sigmoid(mix) * (messages - bp) + 0.5 * jnp.tanh(scale) * bp
        return bp + spins.corrected * moved

    def fields(weights: Any, spins: PaddedSpins, iterations: int) -> Any:
        step = lambda messages, _: (update(weights, messages, spins), None)  # noqa: E731
        messages = jax.lax.scan(step, jnp.zeros_like(spins.coupling), None, length=iterations)[0]
        return cavities(messages, spins)[0]

    @jax.jit
    def run(weights: Any, iterations: Any, *arrays: Any) -> Any:
        spins = PaddedSpins(*arrays)
        step = lambda _, messages: update(weights, messages, spins)  # noqa: E731
        return jax.lax.fori_loop(0, iterations, step, jnp.zeros_like(spins.coupling))

    made: dict[int, Any] = {}

    def losses(iterations: int) -> Any:
        def loss(weights: Any, batch: Any, key: Any) -> Any:
            def one(*parts: Any) -> Any:
                spins, labels = PaddedSpins(*parts[:-1]), parts[-1]
                total = 2.0 * fields(weights, spins, iterations)
                cross = jax.nn.softplus(total) - labels * total
                return (spins.present * cross).sum() / spins.present.sum()

            return jax.vmap(one)(*batch).mean()

        return made.setdefault(iterations, loss)

    _made.append(_MessageFunctions(run, losses))
    return _made[0]


# ---------------------------------------------------------------------- reading


def _reading(graph: FactorGraph, padded: Array) -> tuple[Array, float]:
    """Marginals, and minus the Bethe free energy of the beliefs that these messages make."""
    from scipy.special import expit

    factors = spin_factors(graph)
    assert factors is not None  # `padded_spins` has looked
    m = len(factors.couplings)
    first = graph.scopes[factors.pair_edges].astype(np.int64)
    second = graph.scopes[factors.pair_edges + 1].astype(np.int64)
    to_second, to_first = padded[:m], padded[m : 2 * m]
    field = 0.5 * factors.fields
    total = field + np.bincount(second, to_second, graph.n_variables)
    total += np.bincount(first, to_first, graph.n_variables)
    marginals = expit(2.0 * np.stack([-total, total], axis=1))
    signs = np.array([-1.0, 1.0])
    out = total[first] - to_first, total[second] - to_second
    logs = factors.couplings[:, None, None] * np.multiply.outer(signs, signs)
    logs = logs + out[0][:, None, None] * signs[:, None] + out[1][:, None, None] * signs
    pairs = np.exp(logs - logs.max(axis=(1, 2), keepdims=True))
    pairs /= pairs.sum(axis=(1, 2), keepdims=True)
    agree = (pairs * np.multiply.outer(signs, signs)).sum(axis=(1, 2))
    degree = np.bincount(first, minlength=graph.n_variables).astype(np.float64)
    degree += np.bincount(second, minlength=graph.n_variables)
    single = -(marginals * np.log(np.maximum(marginals, 1e-300))).sum(axis=1)
    energy = float(factors.couplings @ agree) + float(field @ (marginals @ signs))
    log_z = energy + float(entropy(pairs.ravel())) + float(((1.0 - degree) * single).sum())
    # fields are log-odds: x in {0, 1} has the weight exp(field * x), half of it a constant
    constant = factors.constant + 0.5 * float(factors.fields.sum())
    return marginals.ravel(), log_z + constant + graph.log_constant


def _mean_field_bound(graph: FactorGraph, q: Array) -> float:
    """sum_a E_q[log phi_a] + H(q) of the product of these marginals: never above log Z."""
    from kikuchi.graphs.table_shapes import factor_groups

    bound = float(entropy(q)) + graph.log_constant
    for group in factor_groups(graph):
        weight = np.ones(group.entries.shape)
        for k in range(len(group.shape)):
            weight = weight * q[group.states[:, group.onto[:, k]]]
        bound += float((weight * graph.log_tables[group.entries]).sum())
    return bound
