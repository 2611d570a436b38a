"""Getting into a cluster, and taking one over: manifests, and what would change there."""
