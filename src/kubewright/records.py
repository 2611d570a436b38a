"""A record is a Problem with its Plan and settings, on disk."""
