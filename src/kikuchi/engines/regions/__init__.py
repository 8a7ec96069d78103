"""Messages between the regions of a region graph, and their linear response."""
