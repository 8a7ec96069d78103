"""Junction trees: planning, layout, propagation, reading, samples."""
