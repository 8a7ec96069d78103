"""Products of a matrix of 0 and 1 with a real one, in 0.5 to 0.7 of the time of BLAS on one core.

Four rows of the real matrix have sixteen different sums of some of them. These are put in a table,
and four bits of the other matrix choose one of the sums: one addition in place of four
multiplications and additions (the "four Russians"). Five such tables, 256 bytes wide, stay in the
processor's nearest cache.

Numba checks before every short loop that what is read and what is written lie apart; these checks
cost more than the sums. The two innermost loops are therefore given as vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kikuchi.core.compiled import njit

BITS, TABLES, WIDTH = 4, 5, 256  # rows of a table, tables at once, bytes of a row of a table
AT_ONCE = BITS * TABLES
_SUMS = 1 << BITS
_VECTOR = 32  # bytes


# ---------------------------------------------------------------------- bits


@njit(cache=True, error_model="numpy")
def pack_rows(bits, patterns):
    """patterns[g, i] = four numbers below each other in column i; False if any is not 0 or 1."""
    rows, width = bits.shape
    patterns[:] = 0
    for n in range(rows):
        row, words = bits[n], patterns[n // BITS]
        k = np.uint8(n % BITS)
        odd = np.uint8(0)
        for i in range(width):
            odd |= np.uint8((row[i] != 0) & (row[i] != 1))
            words[i] |= np.uint8(np.uint8(row[i] == 1) << k)
        if odd:
            return False
    return True


@njit(cache=True, error_model="numpy")
def pack_columns(bits, patterns):
    """patterns[n, g] = four numbers beside each other in row n; False if any is not 0 or 1."""
    rows, width = bits.shape
    patterns[:] = 0
    whole = width // BITS
    for n in range(rows):
        row, words = bits[n], patterns[n]
        odd = np.uint8(0)
        for i in range(width):
            odd |= np.uint8((row[i] != 0) & (row[i] != 1))
        if odd:
            return False
        for g in range(whole):
            i = BITS * g
            low = np.uint8(row[i]) | np.uint8(np.uint8(row[i + 1]) << np.uint8(1))
            high = np.uint8(row[i + 2]) | np.uint8(np.uint8(row[i + 3]) << np.uint8(1))
            words[g] = low | np.uint8(high << np.uint8(2))
        for i in range(BITS * whole, width):
            words[whole] |= np.uint8(np.uint8(row[i]) << np.uint8(i % BITS))
    return True


# ---------------------------------------------------------------------- sums


@njit(cache=True, error_model="numpy")
def pattern_products(parts, out, fresh):
    """out[n] += the sum over parts (patterns, matrix, scale) of scale * the rows of `matrix` that
    the bits of patterns[:, n] name; = if `fresh`.

    Bit k of patterns[g, n] names row 4 g + k. The number of groups is a multiple of TABLES; rows
    beyond the last of `matrix` count as 0. `out` is contiguous.
    """
    columns = WIDTH // out.itemsize
    tables = np.zeros(TABLES * _SUMS * columns, out.dtype)
    sums = np.empty((len(out), columns), out.dtype)
    for column in range(0, out.shape[1], columns):
        sums[:] = 0
        for patterns, matrix, scale in parts:
            _accumulate(patterns, matrix, scale, column, tables, sums)
        _put(sums, out, column, fresh)


@njit(cache=True, error_model="numpy")
def _accumulate(patterns, matrix, scale, column, tables, sums):
    """Add the columns from `column` on of a product to `sums`."""
    groups, rows = patterns.shape
    inner, columns = len(matrix), sums.shape[1]
    many = min(columns, matrix.shape[1] - column)
    row, table = np.uint64(columns), np.uint64(_SUMS * columns)
    for g in range(0, groups, TABLES):
        _copy(matrix, g * BITS, min(AT_ONCE, inner - g * BITS), column, many, scale, tables)
        _fill(tables, row)
        for n in range(rows):
            chosen = (  # as many as TABLES
                np.uint64(patterns[g, n]) * row,
                np.uint64(patterns[g + 1, n]) * row + table,
                np.uint64(patterns[g + 2, n]) * row + np.uint64(2) * table,
                np.uint64(patterns[g + 3, n]) * row + np.uint64(3) * table,
                np.uint64(patterns[g + 4, n]) * row + np.uint64(4) * table,
            )
            _add_chosen(sums, np.uint64(n) * row, tables, chosen)


@njit(cache=True, error_model="numpy")
def _put(sums, out, column, fresh):
    many = min(sums.shape[1], out.shape[1] - column)
    for n in range(len(out)):
        target, found = out[n, column : column + many], sums[n]
        if fresh:
            for i in range(many):
                target[i] = found[i]
        else:
            for i in range(many):
                target[i] += found[i]


@njit(cache=True, error_model="numpy")
def _copy(matrix, first, count, column, many, scale, tables):
    """Rows of the matrix, times `scale`, to the places of the sums that have one term."""
    columns = WIDTH // matrix.itemsize
    if count < AT_ONCE or many < columns:
        tables[:] = 0
    for k in range(count):
        place = (k // BITS * _SUMS + (1 << k % BITS)) * columns
        row, copy = matrix[first + k, column : column + many], tables[place : place + many]
        for i in range(many):
            copy[i] = scale * row[i]


@njit(cache=True, error_model="numpy")
def _fill(tables, row):
    """The other sums: that of a pattern is that of its last bit and that of the others."""
    for t in range(TABLES):
        first = np.uint64(t * _SUMS) * row
        for pattern in range(3, _SUMS):
            others = pattern & (pattern - 1)
            if others:
                last = np.uint64(pattern - others) * row
                _put_sum(
                    tables,
                    first + np.uint64(pattern) * row,
                    first + np.uint64(others) * row,
                    first + last,
                )


def _vectors(context: Any, builder: ir.IRBuilder, kind: Any, value: Any, first: Any) -> list[Any]:
    """Where the vectors of WIDTH bytes from element `first` of an array lie."""
    data = context.make_array(kind)(context, builder, value).data
    item = context.get_value_type(kind.dtype)
    lanes = _VECTOR * 8 // kind.dtype.bitwidth
    vector = ir.VectorType(item, lanes).as_pointer()
    places = [builder.add(first, first.type(lanes * k)) for k in range(WIDTH // _VECTOR)]
    return [builder.bitcast(builder.gep(data, [place]), vector) for place in places]


@intrinsic
def _put_sum(typing: Any, tables: types.Array, to: Any, left: Any, right: Any) -> Any:
    """tables[to:] = tables[left:] + tables[right:], WIDTH bytes of each."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> Any:
        kind = signature.args[0]
        align = kind.dtype.bitwidth // 8
        targets, lefts, rights = (
            _vectors(context, builder, kind, values[0], place) for place in values[1:]
        )
        for target, one, other in zip(targets, lefts, rights, strict=True):
            total = builder.fadd(builder.load(one, align=align), builder.load(other, align=align))
            builder.store(total, target, align=align)
        return context.get_dummy_value()

    return types.void(tables, to, left, right), generate


@intrinsic
def _add_chosen(
    typing: Any, sums: types.Array, to: Any, tables: types.Array, places: types.UniTuple
) -> Any:
    """sums[to:] += the sum of tables[place:] over `places`, WIDTH bytes of each."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, values: Any) -> Any:
        kinds = signature.args
        align = kinds[0].dtype.bitwidth // 8
        targets = _vectors(context, builder, kinds[0], values[0], values[1])
        chosen = [
            _vectors(context, builder, kinds[2], values[2], builder.extract_value(values[3], k))
            for k in range(TABLES)
        ]
        for k, target in enumerate(targets):
            total = builder.load(target, align=align)
            for place in chosen:
                total = builder.fadd(total, builder.load(place[k], align=align))
            builder.store(total, target, align=align)
        return context.get_dummy_value()

    return types.void(sums, to, tables, places), generate
