"""Moment passing: assumed-density filtering and expectation propagation for any scalar emission."""
