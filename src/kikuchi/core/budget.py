"""`Budget`: limits on the iterations, seconds and bytes of a run, and the clock that enforces
them.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, TypedDict, TypeVar, cast

from kikuchi.core.compiling import COMPILING
from kikuchi.core.errors import BudgetError, MethodError, OutOfTimeError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
DEFAULT_BYTES = 4 * 10**9
_LEAST_SECONDS = 1e-3  # that a run within another is given: budgets are positive
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Budget:
    """Limits of one run; `None` means no limit of that kind.

    `iterations` can lower the `max_iter` of a method, but not raise it. `seconds` is measured
    from the start of the run: it includes set-up and planning, but not the compilation or loading
    of compiled loops. When the time is over, an iteration stops with the best result so far, and a
    set-up raises an error. `bytes` limits the memory that a run adds to the process; a method that
    needs more raises an error with the required size before it begins.

    >>> Budget(seconds=2.0, bytes=parse_bytes("2GB")).bytes
    2000000000
    """

    iterations: int | None = None
    seconds: float | None = None
    bytes: int | None = DEFAULT_BYTES

    def __post_init__(self) -> None:
        for name in ("iterations", "seconds", "bytes"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise MethodError(f"budget: {name} must be a number, got {value!r}")
            if not float(value) > 0:
                raise MethodError(f"budget: {name} must be positive, got {value!r}")

    def start(self) -> Clock:
        """Start the clock."""
        return Clock(self)

    def require_bytes(self, needed: int, what: str, way_out: str) -> None:
        """Raise a `BudgetError` if `needed` bytes exceed the limit, before the work begins. The
        message names `what` needs the memory and the `way_out`.
        """
        if self.bytes is not None and needed > self.bytes:
            raise BudgetError(
                f"{what} needs {format_bytes(needed)} but the budget is "
                f"{format_bytes(self.bytes)}; {way_out}"
            )


class RunLimits(TypedDict, total=False):
    """Keyword arguments for the limits of a run; see `limits`."""

    budget: Budget | None
    seconds: float | None
    memory: int | str | None


def named_limits(function: Function) -> Function:
    """Expose `budget`, `seconds` and `memory` in the signature of a function that takes them as
    `**within`, for `help` and completion, and reject other keywords under the name of the function.

    >>> from typing import Unpack
    >>> @named_limits
    ... def wait(turns: int, **within: Unpack[RunLimits]) -> Budget:
    ...     return limits(**within)
    >>> list(inspect.signature(wait).parameters)
    ['turns', 'budget', 'seconds', 'memory']
    >>> wait(1, second=2)
    Traceback (most recent call last):
    TypeError: wait() got an unexpected keyword argument 'second'
    """
    signature = inspect.signature(function)
    *first, _ = signature.parameters.values()
    own = inspect.signature(limits).parameters.values()
    named = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    known = {parameter.name for parameter in [*first, *named]}

    @functools.wraps(function)
    def called(*values: Any, **keywords: Any) -> Any:
        for name in keywords.keys() - known:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
        return function(*values, **keywords)

    called.__signature__ = signature.replace(parameters=[*first, *named])  # type: ignore[attr-defined]
    return cast(Function, called)


def limits(
    budget: Budget | None = None,
    seconds: float | None = None,
    memory: int | str | None = None,
) -> Budget:
    """Return the limits of a run as a `Budget`, given a `Budget` or seconds and memory.

    Parameters
    ----------
    budget : Budget, optional
        A `Budget`, which excludes the other two; None to make one from them.
    seconds : float, optional
        Time limit in seconds, or None for no limit.
    memory : int or str, optional
        Memory limit, in bytes or as a string such as "2GB"; 4 GB by default.

    >>> limits(seconds=2, memory="2GB")
    Budget(iterations=None, seconds=2, bytes=2000000000)
    >>> limits(budget=5)
    Traceback (most recent call last):
    kikuchi.core.errors.MethodError: budget must be a Budget, such as kk.Budget(seconds=5), got 5; \
or give seconds= and memory=
    """
    if budget is not None:
        if not isinstance(budget, Budget):
            raise MethodError(
                f"budget must be a Budget, such as kk.Budget(seconds=5), got {budget!r}; or give "
                "seconds= and memory="
            )
        if seconds is not None or memory is not None:
            raise MethodError("give either a budget, or seconds and memory, not both")
        return budget
    if memory is None:
        return _UNLIMITED if seconds is None else Budget(seconds=seconds)
    if isinstance(memory, str):
        memory = parse_bytes(memory)
    if isinstance(memory, bool) or not isinstance(memory, numbers.Integral):
        raise MethodError(
            f"memory must be a number of bytes or a string like '2GB', got {memory!r}"
        )
    return Budget(seconds=seconds, bytes=int(memory))


class Clock:
    """The clock of a budget: elapsed seconds, and whether any are left."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.setting_up = True  # until the first iteration; read by `require_time`
        self.kept: tuple[float, float] | None = None  # by `keep_time`, until an iteration ended
        self._start = time.perf_counter()
        self._compiled_before = COMPILING.seconds

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the start, without the time for compiling and loading loops."""
        return time.perf_counter() - self._start - self.compiling

    @property
    def compiling(self) -> float:
        """Seconds since the start that were used for compiling or loading loops."""
        return COMPILING.seconds - self._compiled_before

    @property
    def expired(self) -> bool:
        """Whether the time limit has passed."""
        limit = self.budget.seconds
        return limit is not None and self.seconds >= limit

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit, at least 0; infinite without a limit."""
        limit = self.budget.seconds
        return math.inf if limit is None else max(limit - self.seconds, 0.0)

    def left(self, part: float = 1.0) -> Budget:
        """Return the remaining budget for a nested run: the fraction `part` of the remaining
        seconds, and the other limits unchanged.

        >>> Budget(seconds=8.0).start().left(0.5).seconds <= 4.0
        True
        """
        if self.budget.seconds is None:
            return self.budget
        return replace(self.budget, seconds=max(part * self.seconds_left, _LEAST_SECONDS))

    def keep_time(self, reading: float, setup: float) -> None:
        """Reserve `reading` seconds before the limit for reading off the result, as expected on a
        machine where the set-up and the first iteration take `setup` seconds.
        """
        assert self.budget.seconds is not None
        self.budget = replace(self.budget, seconds=self.budget.seconds - reading)
        self.kept = reading, setup

    def first_iteration_ended(self) -> None:
        """Reserve more time for reading off the result if the machine is slower than expected.

        >>> clock = Budget(seconds=100.0).start()
        >>> clock.keep_time(reading=2.0, setup=1e-9)  # anything takes longer than that
        >>> clock.first_iteration_ended()
        >>> clock.budget.seconds
        0.001
        """
        if self.kept is None or self.budget.seconds is None:
            return
        reading, setup = self.kept
        self.kept = None
        late = max(self.seconds / setup - 1.0, 0.0)
        seconds = max(self.budget.seconds - late * reading, _LEAST_SECONDS)
        self.budget = replace(self.budget, seconds=seconds)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Context manager that excludes its block from the elapsed time, for loading compiled
        loops.
        """
        began = self.seconds
        try:
            yield
        finally:
            self._start += self.seconds - began

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context manager in which `require_time` and `require_memory` use this clock."""
        token = _watching.set(self)
        try:
            yield
        finally:
            _watching.reset(token)

    def iterations(self, wanted: int) -> int:
        """Return the smaller of the method's own iteration limit and that of the budget."""
        limit = self.budget.iterations
        return wanted if limit is None else min(wanted, limit)


_UNLIMITED = Budget()
_watching: ContextVar[Clock | None] = ContextVar("_watching", default=None)


def require_time(what: str, way_out: str) -> None:
    """Raise an `OutOfTimeError` if the time limit has passed during a set-up; called regularly from
    long loops.

    Uses the clock that is `watching`, if any, until its first iteration.

    >>> with Budget(seconds=1e-9).start().watching():
    ...     require_time("listing the cycles", "use bp")
    Traceback (most recent call last):
    kikuchi.core.errors.OutOfTimeError: listing the cycles takes longer than the 1e-09 s of the \
budget; give more seconds or use bp
    """
    clock = _watching.get()
    if clock is not None and clock.setting_up and clock.expired:
        raise OutOfTimeError(
            f"{what} takes longer than the {clock.budget.seconds:g} s of the budget; "
            f"give more seconds or {way_out}"
        )


def require_memory(needed: int, what: str, way_out: str) -> None:
    """Raise an error if a set-up needs more bytes than the budget of the clock that is
    `watching`.
    """
    clock = _watching.get()
    if clock is not None and clock.setting_up:
        clock.budget.require_bytes(needed, what, way_out)


def parse_bytes(text: str) -> int:
    """Return the number of bytes of a size such as `500MB`, `2 GB`, `1.5GiB` or plain bytes.

    >>> parse_bytes("1.5GiB"), parse_bytes("200 MB"), parse_bytes("64")
    (1610612736, 200000000, 64)
    """
    match = re.fullmatch(r"\s*([0-9]++\.?[0-9]*+|\.[0-9]++)\s*+([kmgt]?i?)b?\s*", text.lower())
    unit = (_UNITS | _BINARY_UNITS).get(match[2]) if match else None
    if match is None or unit is None or not 0 < float(match[1]) * unit < 1e300:
        raise MethodError(f"'{text}' is not a size; write for example 500MB, 2GB or 1.5GiB")
    return int(float(match[1]) * unit)


def format_bytes(count: int | float) -> str:
    """Return a size with a suitable unit.

    >>> format_bytes(2_100_000), format_bytes(12)
    ('2.1 MB', '12 B')
    """
    value = float(min(count, 1e300))  # the cost of a plan may be an integer too large for a float
    for unit in ("B", "kB", "MB", "GB", "TB", "PB", "EB"):
        if value < 1000 or unit == "EB":
            break
        value /= 1000
    if value >= 1e4:
        return f"{value:.2g} {unit}"
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.2g} {unit}"
