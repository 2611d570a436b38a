"""A record: a Problem with its Plan and settings, on disk, so that a decision can be looked at and made again."""

from kubewright.records.record import Record, decode, encode, load, save

__all__ = ["Record", "decode", "encode", "load", "save"]
