"""Decorators for methods that would silently drop the options of an estimator if called wrongly.

A class method called on an estimator receives the class, not the options. `instance_method` raises
an error on the class, and `constructor` on an instance; the message contains the right call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kikuchi.core.errors import MethodError

F = TypeVar("F", bound=Callable[..., Any])


class _InstanceMethod:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        update_wrapper(cast(Any, self), function)

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        if instance is not None:
            return cast(Callable[..., Any], self.function.__get__(instance, owner))
        call = f"{owner.__name__}(...).{self.function.__name__}(...)"
        return _refusing(self.function, f"it uses the options of an estimator; write {call}")


def instance_method(function: F) -> F:
    """Decorate a method that uses the options of its estimator, so that it raises an error on the
    class.

    >>> class Estimator:
    ...     @instance_method
    ...     def search(self, rows):
    ...         return len(rows)
    >>> Estimator().search([1, 2])
    2
    >>> Estimator.search([1, 2])
    Traceback (most recent call last):
    ...
    kikuchi.core.errors.MethodError: search: it uses the options of an estimator; \
write Estimator(...).search(...)
    """
    return cast(F, _InstanceMethod(function))


if TYPE_CHECKING:
    constructor = classmethod
else:

    class constructor(classmethod):
        """Decorate a class method that makes an estimator, so that it raises an error on an
        instance.

        >>> class Estimator:
        ...     @constructor
        ...     def known(cls, **options):
        ...         return cls()
        >>> isinstance(Estimator.known(), Estimator)
        True
        >>> Estimator().known()
        Traceback (most recent call last):
        ...
        kikuchi.core.errors.MethodError: known: it makes a new estimator and would drop the \
options of this one; write Estimator.known(...) with these options
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
            if instance is None:
                return super().__get__(instance, owner)
            call = f"{type(instance).__name__}.{self.__name__}(...)"
            return _refusing(
                self.__func__,
                "it makes a new estimator and would drop the options of this one; "
                f"write {call} with these options",
            )


def _refusing(function: Callable[..., Any], why: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise MethodError(f"{function.__name__}: {why}")

    return update_wrapper(refuse, function)
