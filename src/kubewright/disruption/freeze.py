"""The freeze switch: nothing voluntary happens to what is frozen, be it the cluster (a setting), a NodePool or a pod.

`kubewright.sh/freeze` on a NodePool or a pod is "true", or the time (RFC 3339) until which it holds. Anything else but "false"
freezes too, since somebody meant something by it.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

FREEZE = "kubewright.sh/freeze"


def frozen_until(annotations: Mapping[str, str], now: datetime) -> str:
    """Until when it is frozen, in words for people; "" when it is not."""
    written = annotations.get(FREEZE)
    if written is None or written == "false":
        return ""
    if written == "true":
        return "until the annotation is taken off"
    try:
        until = msgspec.convert(written, datetime)
        over = until <= now
    except (msgspec.ValidationError, TypeError):
        return f'because {FREEZE} is {written!r}; write "true", "false" or a time such as 2026-01-02T15:04:05Z'
    return "" if over else f"until {written}"
