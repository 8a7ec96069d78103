"""Figures: every function takes plain arrays and returns a matplotlib Figure.

matplotlib is imported only when the first figure is drawn.
"""

from kikuchi.plots.beliefs import grid_beliefs, histogram, marginal_bars, overview
from kikuchi.plots.comparison import comparison, error_bars, scatter
from kikuchi.plots.convergence import convergence
from kikuchi.plots.factor_graph import draw_graph, drawable
from kikuchi.plots.learning import moments, strengths
from kikuchi.plots.style import to_png_bytes, to_svg

__all__ = [
    "comparison",
    "convergence",
    "draw_graph",
    "drawable",
    "error_bars",
    "grid_beliefs",
    "histogram",
    "marginal_bars",
    "moments",
    "overview",
    "scatter",
    "strengths",
    "to_png_bytes",
    "to_svg",
]
