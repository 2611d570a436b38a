"""The mirror: watch events in, Snapshot out."""
