"""User data: what a machine reads when it starts, so that it joins the cluster as the NodeClaim says. Source: spec/aws 4."""

import base64

from kubewright.api.aws import EC2NodeClass
from kubewright.cloud.aws.userdata import al2, al2023, bottlerocket, windows
from kubewright.cloud.aws.userdata.boot import Boot, UserDataError

__all__ = ["Boot", "UserDataError", "encode", "render"]

LIMIT_BYTES = 16_384
"""Decoded. Source: EC2."""


def render(node_class: EC2NodeClass, boot: Boot) -> str:
    """The text for one kind of machine; the user's part of it is never lost.

    Raises:
        UserDataError: the user's part cannot be merged, or the whole is too long.
    """
    written = node_class.spec.user_data or ""
    renders = {"AL2": al2.render, "AL2023": al2023.render, "Bottlerocket": bottlerocket.render}
    if node_class.ami_family == "Custom":
        text = written
    else:
        text = renders.get(node_class.ami_family, windows.render)(written, node_class.spec, boot)
    text = text.replace("\r", "")
    size = len(text.encode())
    if size > LIMIT_BYTES:
        text = f"spec.userData: the whole is {size} bytes. User data is limited to {LIMIT_BYTES} bytes; let a script fetch more"
        raise UserDataError(text)
    return text


def encode(text: str) -> str:
    """As a launch template holds it."""
    return base64.b64encode(text.encode()).decode() if text else ""
