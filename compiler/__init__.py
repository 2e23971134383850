"""Frontends, passes, planning, host, report and command line: the only layer that composes the others."""
