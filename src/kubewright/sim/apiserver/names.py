"""Names and UIDs that the server invents: the same seed and the same calls give the same ones."""

import random
import uuid

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Source: k8s.io/apimachinery pkg/util/rand: no vowels, so no words."""

_SUFFIX_LENGTH = 5
_LONGEST_BASE = 58


class Names:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose

    def generate(self, prefix: str) -> str:
        suffix = "".join(self._random.choice(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
        return prefix[:_LONGEST_BASE] + suffix

    def uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
