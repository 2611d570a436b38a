"""Rules of a node's end: values in, commands out."""
