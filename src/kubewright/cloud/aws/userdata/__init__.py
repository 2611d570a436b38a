"""User data: what a machine reads when it starts, so that it joins the cluster as the NodeClaim says. Source: spec/aws 4."""

import base64

from kubewright.api.aws import EC2NodeClass
from kubewright.cloud.aws.userdata import al2023, bottlerocket
from kubewright.cloud.aws.userdata.boot import Boot, UserDataError

__all__ = ["Boot", "UserDataError", "encode", "render"]

LIMIT_BYTES = 16_384
"""Decoded. Source: EC2."""


def render(node_class: EC2NodeClass, boot: Boot) -> str:
    """The text for one kind of machine; the user's part of it is never lost.

    Raises:
        UserDataError: the user's part cannot be merged, the family has none, or the whole is too long.
    """
    written = node_class.spec.user_data or ""
    if node_class.ami_family == "AL2023":
        text = al2023.render(written, node_class.spec, boot)
    elif node_class.ami_family == "Bottlerocket":
        text = bottlerocket.render(written, node_class.spec, boot)
    elif node_class.ami_family == "Custom":
        text = written
    else:
        raise UserDataError(
            f"spec.amiFamily: no user data can be written for {node_class.ami_family}; use AL2023 or Bottlerocket"
        )
    text = text.replace("\r", "")
    size = len(text.encode())
    if size > LIMIT_BYTES:
        raise UserDataError(f"spec.userData: the whole is {size} bytes, EC2 takes {LIMIT_BYTES}; have a script fetch the rest")
    return text


def encode(text: str) -> str:
    """As a launch template holds it."""
    return base64.b64encode(text.encode()).decode() if text else ""
