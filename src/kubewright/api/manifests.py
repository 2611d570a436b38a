"""Manifests from files: read, checked strictly, all problems told at once, and nothing used unless everything is good."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kubewright.api import customs, documents, models, olds, workloads
from kubewright.api.documents import Document, Unreadable
from kubewright.api.findings import Finding, nearest, nest, quoted
from kubewright.errors import ManifestError

_OLD_KINDS = {
    ("karpenter.sh/v1alpha5", "Provisioner"),
    ("karpenter.sh/v1alpha5", "Machine"),
    ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
}


class Manifest(msgspec.Struct, frozen=True):
    """One good object: where it was written, and what."""

    file: str
    index: int
    """Which document of the file, from 0."""
    object: dict[str, Any]
    line: int = 1


def load(paths: Iterable[str | Path], *, others: Collection[tuple[str, str]] = ()) -> list[Manifest]:
    """Every object in these files and directories, in order.

    `others` are (apiVersion, kind) pairs of documents that the caller reads and checks itself.

    Raises:
        ManifestError: something is wrong with any of them; it holds all problems of all files.
    """
    found: list[Document] = []
    problems: list[str] = []
    for path in documents.files_under(paths):
        if isinstance(path, Unreadable):
            problems.append(path.render())
            continue
        read, unreadable = documents.read(path)
        found += read
        problems += [u.render() for u in unreadable]
    seen: dict[tuple[str, ...], str] = {}
    for document in found:
        subject = _subject(document.value)
        for finding in _findings(document.value, others):
            where = f"{document.file}:{document.line_of(finding.field)}"
            problems.append(finding.render(where, subject))
        problems += _repeated(document, subject, seen)
    if problems:
        raise ManifestError(problems)
    return [Manifest(d.file, d.index, d.value, d.line) for d in found]


def check(obj: Any) -> list[Finding]:
    """Everything wrong with one object."""
    return list(_findings(obj, ()))


def _findings(obj: Any, others: Collection[tuple[str, str]]) -> Iterator[Finding]:
    if not isinstance(obj, dict):
        mended = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "my-name"}}
        yield Finding("the document", f"found {quoted(obj)}; a manifest is a mapping", mended)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            mended = {"apiVersion": "apps/v1", "kind": "Deployment"}
            yield Finding(field, f"found {quoted(obj.get(field))}; every manifest says what it is", mended)
            return
    if (obj["apiVersion"], obj["kind"]) in others:
        return
    new, old = olds.mend(obj)
    yield from old
    key = (new["apiVersion"], new["kind"])
    if key not in customs.KINDS and key not in models.KINDS:
        yield _unknown_kind(obj)
        return
    if key in customs.KINDS:
        yield from models.check_metadata(new)
        yield from workloads.metadata(new)
        yield from customs.check(new)
        return
    wrong = list(models.check(new))
    yield from wrong
    yield from workloads.metadata(new)
    if not wrong:
        yield from workloads.check(new)


def _unknown_kind(obj: dict[str, Any]) -> Finding:
    version, kind = obj["apiVersion"], obj["kind"]
    known = [*customs.KINDS, *models.KINDS]
    right_version = next((v for v, k in known if k == kind), None)
    if right_version is not None:
        field = "apiVersion"
        return Finding(
            field, f"found {quoted(version)}; {kind} is in {right_version}", {"apiVersion": right_version, "kind": kind}
        )
    near = nearest(kind, [k for _, k in known])
    if near is None:
        return Finding("kind", f"found {quoted(kind)} of {quoted(version)}, which is not known here; known are: {_kinds(known)}")
    mended = {"apiVersion": next(v for v, k in known if k == near), "kind": near}
    return Finding("kind", f"found {quoted(kind)}; did you mean {near}?", mended)


def _kinds(known: Iterable[tuple[str, str]]) -> str:
    return ", ".join(sorted({kind for _, kind in known}))


def _repeated(document: Document, subject: str, seen: dict[tuple[str, ...], str]) -> list[str]:
    """Two documents for one object: applied in order, the second would silently win."""
    obj = document.value
    meta = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(meta, dict) or not meta.get("name"):
        return []
    key = (str(obj.get("apiVersion")), str(obj.get("kind")), str(meta.get("namespace", "default")), str(meta["name"]))
    here = f"{document.file}:{document.line_of('metadata.name')}"
    first = seen.setdefault(key, here)
    if first == here:
        return []
    says = f"found {quoted(meta['name'])}, which {first} also declares; give one of them another name"
    return [Finding("metadata.name", says, nest("metadata.name", f"{meta['name']}-2")).render(here, subject)]


def _subject(obj: Any) -> str:
    if not isinstance(obj, dict):
        return "document"
    meta = obj.get("metadata")
    name = meta.get("name") or meta.get("generateName") if isinstance(meta, dict) else None
    return f"{obj.get('kind', 'object')} {quoted(name) if name else '(no name)'}"
