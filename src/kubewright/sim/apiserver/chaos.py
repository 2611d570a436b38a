"""A server that fails now and then, in a way that can be repeated: for one client, by its hooks."""

import random

import msgspec

from kubewright.errors import Conflict, ServerUnavailable
from kubewright.sim.apiserver.direct import DirectClient


class ChaosSettings(msgspec.Struct, frozen=True):
    """How likely a write fails, each from 0 to 1."""

    unavailable: float = 0.0
    """500 before anything was written."""
    lost_answer: float = 0.0
    """The write lands, and the caller hears that it did not."""
    conflict: float = 0.0
    """409 on patches and deletions, as if somebody else had been faster."""


class Chaos:
    """Makes `client`'s writes fail by chance; the same seed and the same calls fail the same way."""

    def __init__(self, client: DirectClient, seed: int, settings: ChaosSettings) -> None:
        self._random = random.Random(seed)  # noqa: S311  # reproducible on purpose
        self._settings = settings
        self.failures = 0
        """How many writes were made to fail."""
        client.before.append(self._before)
        client.after.append(self._after)

    def _before(self, verb: str, kind: str, key: str) -> None:
        chance = self._random.random()
        if chance < self._settings.unavailable:
            self.failures += 1
            raise ServerUnavailable(500, "InternalError", f"chaos: {verb} {kind} {key} did not reach the store")
        if verb in ("patch", "delete") and chance < self._settings.unavailable + self._settings.conflict:
            self.failures += 1
            raise Conflict(409, "Conflict", f"chaos: Operation cannot be fulfilled on {kind} {key}: the object has been modified")

    def _after(self, verb: str, kind: str, key: str) -> None:
        if self._random.random() < self._settings.lost_answer:
            self.failures += 1
            raise ServerUnavailable(504, "Timeout", f"chaos: the answer to {verb} {kind} {key} was lost; it has landed")
