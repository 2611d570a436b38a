"""MIME multi-part user data: the user's parts first, ours last. Source: spec/aws 4.3."""

import email
import email.policy
from email.message import Message

import msgspec

from kubewright.cloud.aws.userdata.boot import UserDataError

BOUNDARY = "//"
SHELL = 'text/x-shellscript; charset="us-ascii"'


class Part(msgspec.Struct, frozen=True):
    content_type: str
    body: str
    headers: tuple[tuple[str, str], ...] = ()
    """Besides Content-Type, as the user wrote them."""


def is_mime(text: str) -> bool:
    return text.lstrip().startswith(("MIME-Version:", "Content-Type:"))


def read(text: str) -> list[Part]:
    """The parts of a multi-part document.

    Raises:
        UserDataError: it is not multi-part, or has no end.
    """
    message = email.message_from_string(text.strip() + "\n", policy=email.policy.compat32)
    if not message.is_multipart():
        found = message.get_content_type()
        raise UserDataError(f"spec.userData: expected MIME multipart/mixed with a boundary, found {found}")
    parts = []
    for part in message.get_payload():
        if not isinstance(part, Message) or part.is_multipart():
            raise UserDataError("spec.userData: a MIME part holds further parts; put them on one level")
        headers = tuple((k, v) for k, v in part.items() if k.lower() != "content-type")
        body = part.get_payload()
        parts.append(Part(str(part.get("Content-Type", "text/plain")), body if isinstance(body, str) else "", headers))
    return parts


def users(written: str, plain: str) -> list[Part]:
    """The user's parts of a document: those of a MIME text, or the whole as one of type `plain`; none of an empty text."""
    if not written.strip():
        return []
    return read(written) if is_mime(written) else [Part(plain, written)]


def write(parts: list[Part]) -> str:
    """One document whose boundary occurs in no part."""
    boundary = BOUNDARY
    while any(f"--{boundary}" in part.body for part in parts):
        boundary += "/"
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{boundary}"', ""]
    for part in parts:
        lines += [f"--{boundary}", f"Content-Type: {part.content_type}", *(f"{k}: {v}" for k, v in part.headers), "", part.body]
    return "\n".join([*lines, f"--{boundary}--", ""])
