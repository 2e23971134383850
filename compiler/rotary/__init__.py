"""From x·cos + rotated(x)·sin to ``attn.rope``: a proof by algebra, feature by feature."""
