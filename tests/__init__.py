"""The tests, as a package of its own name: some installed packages bring a `tests` too."""
