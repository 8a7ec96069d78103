"""`Budget`: how many iterations, seconds and bytes a run may use, and the clock that watches it."""

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

    `iterations` lowers a method's own `max_iter`, never raises it. `seconds` count from the
    start, set-up and planning included, compiling and loading loops not; iterations end with
    the best answer so far, a set-up that takes longer with an error. `bytes` bounds what a run adds
    to the memory of the process; methods refuse beforehand, with the figure.

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
        """Begin to count time."""
        return Clock(self)

    def require_bytes(self, needed: int, what: str, way_out: str) -> None:
        """Refuse work with `needed` bytes above the limit, before it is begun: the error says
        `what` needs them and the `way_out`.
        """
        if self.bytes is not None and needed > self.bytes:
            raise BudgetError(
                f"{what} needs {format_bytes(needed)} but the budget is "
                f"{format_bytes(self.bytes)}; {way_out}"
            )


class RunLimits(TypedDict, total=False):
    """The keywords by which functions take the limits of a run; `limits` says what they are."""

    budget: Budget | None
    seconds: float | None
    memory: int | str | None


def named_limits(function: Function) -> Function:
    """Show `budget`, `seconds` and `memory` of a function that takes them as `**within` one by one,
    to `help` and to completion, and refuse other keywords by its own name.

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
    """The limits of a run from what a function was given: a `Budget`, or seconds and memory.

    Parameters
    ----------
    budget : a `Budget`, then without the other two; None for one made from them.
    seconds : most seconds, or None for no limit.
    memory : most memory, in bytes or as a text such as "2GB"; 4 GB by default.

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
            raise MethodError("give a budget, or seconds and memory, not both")
        return budget
    if memory is None:
        return _UNLIMITED if seconds is None else Budget(seconds=seconds)
    if isinstance(memory, str):
        memory = parse_bytes(memory)
    if isinstance(memory, bool) or not isinstance(memory, numbers.Integral):
        raise MethodError(f"memory must be a number of bytes or a text like '2GB', got {memory!r}")
    return Budget(seconds=seconds, bytes=int(memory))


class Clock:
    """A started budget: seconds spent, and whether any are left."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.setting_up = True  # until the first iteration; `require_time` looks at it
        self.kept: tuple[float, float] | None = None  # by `keep_time`, until an iteration ended
        self._start = time.perf_counter()
        self._compiled_before = COMPILING.seconds

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the start, those of compiling and loading loops left out."""
        return time.perf_counter() - self._start - self.compiling

    @property
    def compiling(self) -> float:
        """Seconds since the start that went into compiling loops or loading them."""
        return COMPILING.seconds - self._compiled_before

    @property
    def expired(self) -> bool:
        """True when the time limit has passed."""
        limit = self.budget.seconds
        return limit is not None and self.seconds >= limit

    @property
    def seconds_left(self) -> float:
        """Seconds until the limit, at least 0; infinite where there is none."""
        limit = self.budget.seconds
        return math.inf if limit is None else max(limit - self.seconds, 0.0)

    def left(self, part: float = 1.0) -> Budget:
        """What is left of the budget for a run within this one: a part of the seconds, and the
        other limits as they are.

        >>> Budget(seconds=8.0).start().left(0.5).seconds <= 4.0
        True
        """
        if self.budget.seconds is None:
            return self.budget
        return replace(self.budget, seconds=max(part * self.seconds_left, _LEAST_SECONDS))

    def keep_time(self, reading: float, setup: float) -> None:
        """End `reading` seconds before the limit, which reading the result will take on a machine
        where the set-up and the first iteration take `setup` seconds.
        """
        assert self.budget.seconds is not None
        self.budget = replace(self.budget, seconds=self.budget.seconds - reading)
        self.kept = reading, setup

    def first_iteration_ended(self) -> None:
        """Keep more time for reading the result if the machine has been slower than expected.

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
        """Do not count the time of the block: for loading compiled loops, once per process."""
        began = self.seconds
        try:
            yield
        finally:
            self._start += self.seconds - began

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Let `require_time` and `require_memory` look at this clock in the block."""
        token = _watching.set(self)
        try:
            yield
        finally:
            _watching.reset(token)

    def iterations(self, wanted: int) -> int:
        """The method's own limit or the budget's, whichever is smaller."""
        limit = self.budget.iterations
        return wanted if limit is None else min(wanted, limit)


_UNLIMITED = Budget()
_watching: ContextVar[Clock | None] = ContextVar("_watching", default=None)


def require_time(what: str, way_out: str) -> None:
    """Refuse to go on with a set-up once the seconds are over; for long loops, now and then.

    Looks at the clock that is `watching`, if any, before its first iteration.

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
    """Refuse a set-up that needs more bytes than the budget of the clock that is `watching`."""
    clock = _watching.get()
    if clock is not None and clock.setting_up:
        clock.budget.require_bytes(needed, what, way_out)


def parse_bytes(text: str) -> int:
    """Read a size such as `500MB`, `2 GB`, `1.5GiB` or plain bytes.

    >>> parse_bytes("1.5GiB"), parse_bytes("200 MB"), parse_bytes("64")
    (1610612736, 200000000, 64)
    """
    match = re.fullmatch(r"\s*([0-9]++\.?[0-9]*+|\.[0-9]++)\s*+([kmgt]?i?)b?\s*", text.lower())
    unit = (_UNITS | _BINARY_UNITS).get(match[2]) if match else None
    if match is None or unit is None or not 0 < float(match[1]) * unit < 1e300:
        raise MethodError(f"'{text}' is not a size; write for example 500MB, 2GB or 1.5GiB")
    return int(float(match[1]) * unit)


def format_bytes(count: int | float) -> str:
    """A size for people.

    >>> format_bytes(2_100_000), format_bytes(12)
    ('2.1 MB', '12 B')
    """
    value = float(min(count, 1e300))  # the cost of a plan may be a whole number beyond any float
    for unit in ("B", "kB", "MB", "GB", "TB", "PB", "EB"):
        if value < 1000 or unit == "EB":
            break
        value /= 1000
    if value >= 1e4:
        return f"{value:.2g} {unit}"
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.2g} {unit}"
