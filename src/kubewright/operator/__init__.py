"""Wiring, flags and environment."""
