"""Compiled loops of belief networks: functions over flat arrays."""
