"""Frontends: a program from outside becomes an :class:`attnc.ir.graph.Graph`."""
