"""Region graphs: sets of variables with a joint belief, and their counting numbers.

`RegionGraph` itself, its builders by name (`faces`, `loops`, `blocks`, `junction-tree`, ...), and
tests of the quality of a choice of regions.
"""
