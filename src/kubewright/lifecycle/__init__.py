"""Rules of a node's life: values in, effects out."""
