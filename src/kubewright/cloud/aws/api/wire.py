"""What every call has in common: AWS's names, pages, filters, tags."""

import msgspec


class Aws(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="pascal", omit_defaults=True):
    """Base of everything on this page: AWS's names, unknown fields dropped, defaults left out of requests."""


class Page(Aws, frozen=True, kw_only=True):
    """An answer that may go on: ask again with `next_token`."""

    next_token: str = ""


class PagedRequest(Aws, frozen=True, kw_only=True):
    next_token: str = ""
    max_results: int = 0


class Filter(Aws, frozen=True, kw_only=True):
    """Values are ORed, filters are ANDed; `*` is a wildcard inside values."""

    name: str
    values: tuple[str, ...]


class Tag(Aws, frozen=True, kw_only=True):
    key: str
    value: str = ""


def tags_of(tags: tuple[Tag, ...]) -> dict[str, str]:
    return {t.key: t.value for t in tags}


class Done(Aws, frozen=True, kw_only=True):
    """An answer that says only that it worked."""
