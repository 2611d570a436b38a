"""One module a reconciler: read the mirror, call a decider, act."""
