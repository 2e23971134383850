"""From an attention to a kernel plan."""
