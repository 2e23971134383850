"""The host side of the torch frontends: capture a graph, give it back, run what is not ours with Inductor or ATen."""
