"""Everything this package raises on purpose.

KubewrightError
├── ConfigError                 the operator was started wrongly (flags, kubeconfig); exit code 2
├── ManifestError               a file that people wrote cannot be used; names file, object, field, mend; exit code 2
├── KubeError                   the API server answered, and the answer was no
│   ├── NotFound                404
│   ├── AlreadyExists           409 on create
│   ├── Conflict                409 on a stale resourceVersion or a failed precondition; read again and retry
│   ├── Gone                    410; list again
│   ├── Invalid                 422; the object will never be accepted as it is
│   ├── Forbidden               403; RBAC is too narrow
│   ├── TooManyRequests         429; an eviction a PDB refuses, or a server that wants less
│   └── ServerUnavailable       5xx, or no answer at all; retry with back-off
└── CloudError                  the cloud answered, and the answer was no
    ├── InstanceNotFound        the instance is gone (Karpenter: NodeClaimNotFound)
    ├── InsufficientCapacity    try other offerings; these are out
    ├── NodeClassNotReady       wait; nothing is wrong with the claim
    ├── LaunchFailed            carries the condition reason and message to show
    └── Throttled               the cloud wants fewer calls; retry with back-off

A 'no' that is part of ordinary scheduling is not here: see `scheduling.refusal.Refusal`.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class KubewrightError(Exception):
    """Catch this to catch all of ours and none of anybody else's."""


class ConfigError(KubewrightError):
    """The operator was started wrongly; the text says which flag, file or variable, and what to write instead."""


class ManifestError(KubewrightError):
    """A manifest cannot be used.

    `problems` are whole lines: file, object, field, what was found, the mend.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


class KubeError(KubewrightError):
    """The API server said no.

    `status` is the HTTP code, `reason` the Status object's reason, `message` its text, `details` its details as the wire has
    them (causes by field, retryAfterSeconds); None when the answer had none.
    """

    def __init__(self, status: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return self.message or f"{self.status} {self.reason}"


class NotFound(KubeError):
    """The object is not there (any more)."""


class AlreadyExists(KubeError):
    """An object of that name is there already; for a safely repeated create this is success."""


class Conflict(KubeError):
    """The object changed since it was read, or a precondition failed: read again and retry."""


class Gone(KubeError):
    """The watch's or list's resourceVersion is too old: list again."""


class Invalid(KubeError):
    """The object will never be accepted as it is."""


class Forbidden(KubeError):
    """RBAC does not allow the call."""


class TooManyRequests(KubeError):
    """An eviction that a PodDisruptionBudget refuses now, or a server that wants less."""


class ServerUnavailable(KubeError):
    """The server failed or did not answer; retry with back-off."""


class CloudError(KubewrightError):
    """The cloud said no."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class InstanceNotFound(CloudError):
    """The instance is gone; a delete that gets this has succeeded."""


class InsufficientCapacity(CloudError):
    """The offerings asked for are out for now; the NodeClaim is deleted and its pods are planned anew."""


class NodeClassNotReady(CloudError):
    """The NodeClass cannot serve launches at present."""


class LaunchFailed(CloudError):
    """A launch failed for a reason that belongs on the NodeClaim's Launched condition."""

    def __init__(self, condition_reason: str, message: str) -> None:
        super().__init__(message)
        self.condition_reason = condition_reason


class Throttled(CloudError):
    """The cloud wants fewer calls; retry with back-off."""
