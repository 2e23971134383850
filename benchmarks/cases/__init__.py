"""Inputs that several checks share: ways to write attention, and things that look like it and are not."""
