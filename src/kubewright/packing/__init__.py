"""Where plans are improved and bounded; composes with first fit."""
