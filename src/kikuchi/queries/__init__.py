"""Questions by name: labelled distributions, batches of cases, and models of other libraries."""
