"""What can be bought: instance types and their offerings, as values and behind bit masks."""
