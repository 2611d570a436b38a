"""Metrics registry with the reference's names (spec/scheduling 12)."""
