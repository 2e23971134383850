"""Acceptance: every promise of a stage is a check, run for real, resumable, with its figures kept."""
