"""Questions with names: labelled answers, batches of cases, models of other libraries.

The function `kk.query` has the name of this package, which Python binds to the same attribute once
a module of it is imported; so the package may be called, and answers as the function does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from kikuchi.query.query import query

        return query(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
