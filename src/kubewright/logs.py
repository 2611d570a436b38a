"""Small services: see `clock`, `logs`, `metrics`, `records`."""
