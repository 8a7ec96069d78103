"""The same numbers in other frameworks: a factor of a NumPyro model, a function of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from kikuchi.core.arrays import Array
from kikuchi.core.budget import Budget
from kikuchi.core.errors import MissingExtraError, ModelError
from kikuchi.core.extras import install
from kikuchi.graphs.factor_graph import FactorGraph
from kikuchi.methods.method import Method
from kikuchi.neural.differentiable import kernel_of, log_z


def numpyro_factor(
    name: str,
    graph: FactorGraph,
    tables: Any,
    labels: Any = None,
    method: str | Method = "jt",
    *,
    budget: Budget | None = None,
) -> None:
    """Add a discrete graph to a NumPyro model, its variables observed or summed out.

    With `labels` the site adds their log-probability given the tables, score less log Z; without,
    it adds log Z, so that all states of the graph are summed out of the model.

    Parameters
    ----------
    name : str
        Name of the site.
    graph : FactorGraph
        The structure; its own tables are not read.
    tables
        Flat log-tables, made from random variables of the model.
    labels : optional
        The state of each variable, or None.
    method : str or Method, default "jt"
        Method of log Z; its gradient is the implicit one, so that NUTS can use it.
    budget : Budget, optional
        Limits of each run of the method.

    >>> import kikuchi as kk, numpyro, jax
    >>> graph = kk.FactorGraph([2], [((0,), [1, 1])])
    >>> def model():
    ...     bias = numpyro.sample("bias", numpyro.distributions.Normal(0.0, 1.0))
    ...     numpyro_factor("coin", graph, jax.numpy.array([0.0, 1.0]) * bias, np.array([1]))
    >>> sites = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace()
    >>> sorted(sites)
    ['bias', 'coin']
    """
    try:
        import numpyro
    except ImportError:
        raise MissingExtraError(
            f"a factor of a NumPyro model needs numpyro; {install('peers')}"
        ) from None
    from kikuchi.neural.crf import crf_loss

    if labels is None:
        value = log_z(graph.with_log_tables(tables), method, budget=budget)
    else:
        value = -crf_loss(graph, tables, labels, method, budget=budget)
    numpyro.factor(name, value)


def torch_beliefs(
    graph: FactorGraph,
    tables: Any,
    method: str | Method = "jt",
    *,
    budget: Budget | None = None,
) -> tuple[Any, Any, Any]:
    """log Z, flat marginals and flat factor beliefs as PyTorch tensors with implicit gradients.

    They can be differentiated once; PyTorch refuses a second derivative.

    Parameters
    ----------
    graph : FactorGraph
        The structure; its own tables are not read.
    tables
        A tensor of flat log-tables, its last axis as long as `graph.log_tables`; gradients flow
        back to it. Leading axes are those of a batch of models, and of all that is returned. Chains
        and trees with the method `jt` take one compiled loop for the whole batch.
    method : str or Method, default "jt"
        As for `log_z`.
    budget : Budget, optional
        Limits of each run of the method.

    Raises
    ------
    MissingExtraError
        Where PyTorch is not installed; it belongs to no extra of this package.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError(
            "torch_beliefs needs PyTorch, which no extra installs; pip install torch"
        ) from None
    if tables.ndim == 0:
        raise ModelError("torch_beliefs takes flat log-tables, got a tensor without axes")
    kernel = kernel_of(graph, method, budget=budget)

    class Found(torch.autograd.Function):  # type: ignore[misc]
        """Forward by the compiled kernels, backward by linear response."""

        @staticmethod
        def forward(ctx: Any, values: Any) -> tuple[Any, Any, Any]:
            lead = tuple(values.shape[:-1])
            ctx.rows = _numbers(values).reshape(-1, values.shape[-1])
            log_z, marginals, ctx.factors = kernel.found(ctx.rows)
            parts = (
                log_z.reshape(lead),
                marginals.reshape(*lead, -1),
                ctx.factors.reshape(values.shape),
            )
            return tuple(values.new_tensor(part) for part in parts)

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, weight: Any, marginals: Any, factors: Any) -> Any:
            turned = (_numbers(part).reshape(len(ctx.rows), -1) for part in (marginals, factors))
            moved = kernel.moved(ctx.rows, *turned)
            moved += _numbers(weight).reshape(-1, 1) * ctx.factors
            return weight.new_tensor(moved.reshape(factors.shape))

    found: tuple[Any, Any, Any] = Found.apply(tables)
    return found


def _numbers(tensor: Any) -> Array:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)
