"""Region graphs: which sets of variables share a belief, and how often each counts.

`RegionGraph` itself, its builders by name (`faces`, `loops`, `blocks`, `junction-tree`, ...), and
the tests of what makes a choice of regions sound.
"""
