"""Loops that only other loops call: compiled into their callers, not called from Python.

Numba generates machine code and a wrapper for Python objects for every loop, and copies both into
each caller, where they are optimised once more. An inner loop has neither and is optimised only in
its callers, which saves up to a third of the compile time. If it is called from Python, it is
compiled again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite.binding import parse_bitcode
from numba.core import compiler, event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import AnnotateTypes


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Code that is inlined into callers, which are optimised as a whole; no machine code is
    generated.
    """

    def _optimize_final_module(self) -> None:
        """Do nothing: the callers are optimised."""

    def _finalize_final_module(self) -> None:
        """Verify the module without adding it to the engine, which would generate machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def bitcode(self) -> bytes:
        """Return the code in the format of `from_bitcode`."""
        return bytes(self._get_module_for_linking().as_bitcode())

    @classmethod
    def from_bitcode(cls, codegen: Any, name: str, content: bytes) -> InnerLibrary:
        """Return the code that another process compiled."""
        library = cls(codegen, name)
        library._shared_module = parse_bitcode(content)
        library._finalized = True
        return library


class InnerEntry:
    """Placeholder for the compiled entry point of an inner loop; calling it compiles one."""

    def __init__(self, loop: Any, types: tuple[Any, ...]) -> None:
        self._loop = loop
        self._types = types

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compile the loop for calls from Python, and call it."""
        self._loop.overloads.pop(self._types, None)
        return self._loop(*args, **kwargs)


class KeptInner(NamedTuple):
    """An inner loop on disk. Environments contain the constants of the loops that it calls."""

    name: str
    bitcode: bytes
    function: Any
    environment: Any
    signature: Any
    environments: tuple[Any, ...]


def compile_inner(loop: Any, types: tuple[Any, ...]) -> None:
    """Prepare `loop` for loops that call it, from disk or by compiling it."""
    with global_compiler_lock:
        if types in loop.overloads or loop.is_compiling:
            return
        kept = loop._cache.load_inner(types, loop.targetctx) if loop.keeps_inner else None
        result = _result(loop, kept) if kept is not None else _compiled(loop, types)
        result = result._replace(entry_point=InnerEntry(loop, types))
        loop.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
        loop.overloads[types] = result
        if kept is None and loop.keeps_inner:
            loop._cache.save_inner(types, _kept(result), loop.targetctx.codegen())


@register_pass(mutates_CFG=False, analysis_only=True)
class _WithoutEntry(AnalysisPass):  # type: ignore[misc]
    """Compiler without wrapper and machine code. If these flags were set from the beginning, Numba
    would compile again everything that it has compiled for callers with other flags.
    """

    _name = "kikuchi_without_entry"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.flags.no_cpython_wrapper = True
        state.flags.no_compile = True
        return False


class _InnerCompiler(compiler.CompilerBase):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        passes = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_WithoutEntry, AnnotateTypes)
        passes.finalize()
        return [passes]


def _compiled(loop: Any, types: tuple[Any, ...]) -> Any:
    own, context = loop._compiler, loop.targetctx
    flags = compiler.Flags()
    own.targetdescr.options.parse_as_flags(flags, own.targetoptions)
    details = {"dispatcher": loop, "args": types, "return_type": None}
    with loop.is_compiling, event.trigger_event("numba:compile", data=details):
        return compiler.compile_extra(
            own.targetdescr.typing_context,
            context,
            loop.py_func,
            args=types,
            return_type=None,
            flags=flags,
            locals=own.locals,
            library=InnerLibrary(context.codegen(), loop.py_func.__qualname__),
            pipeline_class=_InnerCompiler,
        )


def _kept(result: Any) -> KeptInner:
    result.fndesc.typemap = result.fndesc.calltypes = None  # as Numba does; they need not pickle
    return KeptInner(
        result.library.name,
        result.library.bitcode(),
        result.fndesc,
        result.environment,
        result.signature,
        tuple(result._find_referenced_environments()),
    )


def _result(loop: Any, kept: KeptInner) -> Any:
    context = loop.targetctx
    return compiler.compile_result(
        typing_context=context.typing_context,
        target_context=context,
        library=InnerLibrary.from_bitcode(context.codegen(), kept.name, kept.bitcode),
        fndesc=kept.function,
        environment=kept.environment,
        signature=kept.signature,
        objectmode=False,
        lifted=(),
        reload_init=(),
        referenced_envs=kept.environments,
    )


def set_environments(result: Any) -> None:
    """Give the machine code of a caller the environments of the loops inlined into it."""
    for environment in result._find_referenced_environments():
        result.codegen.set_env(environment.env_name, environment)
