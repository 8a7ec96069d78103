"""Passes over the counts in a file, as plain Python or, for large files, compiled.

A count gives the number of tokens that follow, so the position of the next count is known only
after reading it. Only this chain cannot be processed as whole arrays. A pass stops at an invalid
token, and the caller raises the error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kikuchi.graphs.formats.kinds import INTEGER


class ScopeLists(NamedTuple):
    """Output of a walk over scopes: the first token and the table size of each factor, and the
    concatenated variables of all factors; `seen` contains -1 for each variable.
    """

    starts: Any
    sizes: Any
    variables: Any
    seen: Any


def scopes(
    values: Any, kinds: Any, cards: Any, first: int, low: int, found: ScopeLists
) -> tuple[int, int, int]:
    """Read the scopes of a UAI file: lists, each a count (at least `low`) and variables.

    Returns the number of valid scopes, the token where the next one begins, and the number of
    variables filled in.
    """
    starts, sizes, variables, seen = found.starts, found.sizes, found.variables, found.seen
    end = len(values)
    place = first
    filled = 0
    for factor in range(len(starts)):
        if place >= end or kinds[place] != INTEGER or not low <= values[place] < end - place:
            return factor, place, filled
        size = 1.0
        following = place + 1 + int(values[place])
        for token in range(place + 1, following):
            if kinds[token] != INTEGER or values[token] >= len(cards):
                return factor, place, filled
            variable = int(values[token])
            if seen[variable] == factor:
                return factor, place, filled
            seen[variable] = factor
            size *= cards[variable]
            variables[filled] = variable
            filled += 1
        starts[factor] = place
        sizes[factor] = size
        place = following
    return len(starts), place, filled


def block_starts(values: Any, kinds: Any, first: int, starts: Any) -> tuple[int, int]:
    """Fill `starts` with the first token of each factor of libDAI's format.

    A factor is: order, as many labels, as many cardinalities, a count, as many (index, value).
    Returns the number of complete factors, and the token where the next one begins.
    """
    end = len(values)
    place = first
    for k in range(len(starts)):
        if place >= end or kinds[place] != INTEGER or values[place] > end:
            return k, place
        count = place + 1 + 2 * int(values[place])
        if count >= end or kinds[count] != INTEGER or values[count] > end:
            return k, place
        following = count + 1 + 2 * int(values[count])
        if following > end:
            return k, place
        starts[k] = place
        place = following
    return len(starts), place
