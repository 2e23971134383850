"""Models that already keep keys and values: proved to be the last rows of a model that doesn't, and made one."""
