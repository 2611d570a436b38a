"""Clouds: the Protocol that controllers speak, and the providers."""
