"""From a causal decoder without a cache to a program over a ragged batch of new tokens with paged keys and values."""
