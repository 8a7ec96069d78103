"""Methods of an estimator that exist for some of its fits only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar, cast

from kikuchi.core.errors import UnavailableError
from kikuchi.core.programs import kept

F = TypeVar("F", bound=Callable[..., Any])


class _AvailableUnless:
    """Descriptor of a method that is missing where `reason` returns a reason."""

    def __init__(self, function: Callable[..., Any], reason: Callable[[Any], str | None]) -> None:
        functools.update_wrapper(cast("Any", self), function)
        self._function, self._reason = kept(function), reason

    def __get__(self, estimator: Any, kind: type | None = None) -> Callable[..., Any]:
        if estimator is None:
            return self._function
        if text := self._reason(estimator):
            raise UnavailableError(text)
        return MethodType(self._function, estimator)


def available_unless(reason: Callable[[Any], str | None]) -> Callable[[F], F]:
    """Decorate a method that an estimator does not have if `reason(estimator)` returns a text.

    `hasattr` is then False, as scikit-learn asks; to call the method raises an `UnavailableError`
    with that text. An estimator that is not fitted has the method, which raises its own error.

    >>> class Box:
    ...     n_sides = 4
    ...     @available_unless(lambda box: None if box.n_sides == 6 else "only cubes roll")
    ...     def roll(self):
    ...         return 3
    >>> box = Box()
    >>> hasattr(box, "roll")
    False
    >>> box.n_sides = 6
    >>> box.roll()
    3
    """

    def decorate(function: F) -> F:
        return cast("F", _AvailableUnless(function, reason))

    return decorate
