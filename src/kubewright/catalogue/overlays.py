"""NodeOverlays: corrections of what instance types cost and have, and which of them may stand together.

Every overlay is judged as a whole and for all pools before any of it counts. Overlays of greater weight win; those of equal
weight must not say anything about the same price or resource, or the one whose name comes first in the alphabet is refused.
Source: spec/scheduling 9.1. Differs on purpose: a conflict over capacity is seen with every overlay of the weight, not only with
the one looked at last; corrections reach types that came after the overlay was judged; a corrected type keeps everything else.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubewright.api import labels, quantity, validation
from kubewright.api.karpenter import NodeOverlay, NodePool
from kubewright.api.validation import Vocabulary
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.scheduling.requirement import DOES_NOT_EXIST, NOT_IN, Requirement
from kubewright.scheduling.requirements import Requirements, agree, of_expressions, of_labels

_NEGATIVE = (NOT_IN, DOES_NOT_EXIST)

KEPT = 50_000
"""Types remembered for one overlay."""
RUNTIME_VALIDATION = "RuntimeValidation"
CONFLICT = "Conflict"
CONFLICT_TEXT = "conflict with another overlay"


class Overlay(msgspec.Struct, frozen=True):
    """A NodeOverlay, read."""

    name: str
    weight: int
    requirements: Mapping[str, Requirement]
    price: str = ""
    """As written: "1.5" is the price, "+1.5", "-1.5", "+10%" and "-10%" change it, "" leaves it."""
    capacity: Mapping[str, int] = {}
    version: str = ""
    """Differs for different content under one name."""

    @classmethod
    def of(cls, written: NodeOverlay, aliases: Mapping[str, str] = labels.ALIASES) -> "Overlay":
        """Raises ValueError: a requirement or quantity that validation would have refused."""
        spec = written.spec
        return cls(
            written.name,
            spec.weight or 0,
            of_expressions(spec.requirements, aliases),
            spec.price if spec.price is not None else spec.price_adjustment or "",
            quantity.parse_map(spec.capacity or {}),
            f"{written.metadata.uid}/{written.metadata.generation}",
        )


class Verdict(msgspec.Struct, frozen=True):
    """Why an overlay does not count; without a reason it does."""

    reason: str = ""
    message: str = ""


class Judgement(msgspec.Struct, frozen=True):
    """What became of all overlays."""

    verdicts: Mapping[str, Verdict] = {}
    """Overlay name → verdict, by name."""
    accepted: tuple[Overlay, ...] = ()
    """In the order in which they win."""


class Offered(msgspec.Struct, frozen=True):
    """What a pool can buy, uncorrected."""

    pool: NodePool
    types: tuple[InstanceType, ...]


class Matcher:
    """Remembers what overlays are about, type by type: lists change in a few types at a time, and pools are mostly alike."""

    def __init__(self, well_known: frozenset[str]) -> None:
        self.well_known = well_known
        self._known: dict[tuple[object, ...], dict[int, tuple[InstanceType, tuple[int, ...]]]] = {}

    def of(self, overlay: Overlay, own: Requirements) -> Callable[[InstanceType], tuple[int, ...]]:
        """`matching` for one overlay and one pool's labels. The function is for the moment: overlays come and go."""
        mark = tuple(own[key].identity for key in sorted(overlay.requirements) if key in own)
        known = self._known.setdefault((overlay.name, overlay.version, mark), {})

        def matched(kind: InstanceType) -> tuple[int, ...]:
            before = known.get(id(kind))
            if before is None:
                if len(known) >= KEPT:
                    known.clear()
                before = known[id(kind)] = (kind, matching(overlay, own, kind, self.well_known))
            return before[1]

        return matched

    def forget(self, overlays: Iterable[Overlay]) -> None:
        """Keep what is known of these only."""
        kept = {(one.name, one.version) for one in overlays}
        self._known = {key: known for key, known in self._known.items() if (key[0], key[1]) in kept}


def judge(
    overlays: Iterable[NodeOverlay],
    offered: Iterable[Offered],
    vocabulary: Vocabulary = validation.AWS,
    matcher: Matcher | None = None,
) -> Judgement:
    """Which overlays count, over all pools together. Pools that cannot be asked are left out of `offered` and stop nobody.

    `matcher`, kept from call to call, saves looking again at what has not changed.
    """
    matcher = matcher or Matcher(vocabulary.well_known)
    verdicts: dict[str, Verdict] = {}
    accepted: list[Overlay] = []
    read: list[Overlay] = []
    catalogues = _different(offered, overlays := tuple(overlays), vocabulary.aliases)
    weight = -1
    priced: dict[int, int] = {}
    """Catalogue → offerings, as bits, that an overlay of the present weight has had a say about."""
    given: dict[tuple[int, str], int] = {}
    """(catalogue, resource) → types, as bits, likewise."""
    for written in sorted(sorted(overlays, key=lambda o: o.name, reverse=True), key=lambda o: -(o.spec.weight or 0)):
        problems = validation.overlay_problems(written, vocabulary)
        try:
            one = Overlay.of(written, vocabulary.aliases)
        except ValueError as error:
            problems = problems or (str(error),)
        if problems:
            verdicts[written.name] = Verdict(RUNTIME_VALIDATION, "; ".join(problems))
            continue
        read.append(one)
        if one.weight != weight:
            weight, priced, given = one.weight, {}, {}
        looked_at: dict[tuple[object, ...], tuple[int, int]] = {}
        about: list[tuple[int, int]] = []
        for own, types, keys in catalogues:
            mark = (id(types), *(own[key].identity for key in sorted(one.requirements) if key in own))
            if mark not in looked_at:
                looked_at[mark] = _about(matcher.of(one, own), types) if is_possible(one, own, keys) else (0, 0)
            about.append(looked_at[mark])
        clashes = any(
            (one.price and priced.get(c, 0) & offerings) or any(given.get((c, name), 0) & kinds for name in one.capacity)
            for c, (offerings, kinds) in enumerate(about)
        )
        if clashes:
            verdicts[written.name] = Verdict(CONFLICT, CONFLICT_TEXT)
            continue
        for c, (offerings, kinds) in enumerate(about):
            if one.price:
                priced[c] = priced.get(c, 0) | offerings
            for name in one.capacity:
                given[c, name] = given.get((c, name), 0) | kinds
        verdicts[written.name] = Verdict()
        accepted.append(one)
    matcher.forget(read)
    return Judgement(dict(sorted(verdicts.items())), tuple(accepted))


def is_possible(overlay: Overlay, own: Requirements, keys: Collection[str]) -> bool:
    """Whether any type can answer to the overlay in a pool with these labels; `keys` are the labels that types have."""
    for key, wanted in overlay.requirements.items():
        given = own.get(key)
        if given is None:
            if key not in keys and wanted.operator not in _NEGATIVE:
                return False
        elif not agree(given, wanted):
            return False
    return True


def keys_of(types: Iterable[InstanceType]) -> frozenset[str]:
    """Labels that some type has."""
    return frozenset(key for kind in types for key in kind.requirements)


def _about(matched: Callable[[InstanceType], tuple[int, ...]], types: Iterable[InstanceType]) -> tuple[int, int]:
    """(offerings, types) that an overlay is about, as bits, in the order of the list."""
    offerings = kinds = at = 0
    for t, kind in enumerate(types):
        for i in matched(kind):
            offerings |= 1 << (at + i)
            kinds |= 1 << t
        at += len(kind.offerings)
    return offerings, kinds


def matching(overlay: Overlay, own: Requirements, kind: InstanceType, well_known: frozenset[str]) -> tuple[int, ...]:
    """Indices of the type's offerings that the overlay is about; none if the type itself does not answer to it.

    `own` are the labels that the pool gives its nodes. What the overlay asks for must be known of the type; what an offering says
    besides must be a well-known label.
    """
    asked = overlay.requirements
    for key, wanted in asked.items():
        has, given = kind.requirements.get(key), own.get(key)
        if given is not None:
            has = given if has is None else given & has
        if has is None:
            if wanted.operator not in _NEGATIVE:
                return ()
        elif not agree(has, wanted):
            return ()
    return tuple(i for i, offering in enumerate(kind.offerings) if _is_about(asked, offering, well_known))


def _is_about(asked: Requirements, offering: Offering, well_known: frozenset[str]) -> bool:
    for key, has in offering.requirements.items():
        wanted = asked.get(key)
        if wanted is None:
            if key not in well_known and has.operator not in _NEGATIVE:
                return False
        elif not agree(wanted, has):
            return False
    return True


def adjusted(price: float, change: str) -> float:
    """A price in USD per hour after an overlay's `price` or `priceAdjustment`; never below 0."""
    if not change.startswith(("+", "-")):
        return max(0.0, float(change))
    if change.endswith("%"):
        return max(0.0, price * (1 + float(change[:-1]) / 100))
    return max(0.0, price + float(change))


def corrected(about: Iterable[tuple[Overlay, tuple[int, ...]]], kind: InstanceType) -> InstanceType:
    """The type as overlays leave it; `kind` itself if none is about it.

    `about` has what each overlay that counts is `matching`; the first to say something wins.
    """
    prices: dict[int, float] = {}
    capacity: dict[str, int] = {}
    for one, matched in about:
        if not matched:
            continue
        if one.price:
            for i in matched:
                prices.setdefault(i, adjusted(kind.offerings[i].price, one.price))
        for name, amount in one.capacity.items():
            capacity.setdefault(name, amount)
    if not prices and not capacity:
        return kind
    offerings = tuple(
        replace(o, price=prices[i], price_overlaid=True) if i in prices else o for i, o in enumerate(kind.offerings)
    )
    if not capacity:
        return replace(kind, offerings=offerings)
    return replace(kind, offerings=offerings, capacity={**kind.capacity, **capacity}, capacity_overlaid=True)


def labels_of(pool: NodePool, aliases: Mapping[str, str] = labels.ALIASES) -> dict[str, Requirement]:
    """What a pool says of its nodes by itself: its name and its template's labels."""
    return of_labels({**(pool.spec.template.metadata.labels or {}), labels.NODEPOOL: pool.name}, aliases)


def _different(
    offered: Iterable[Offered], overlays: Sequence[NodeOverlay], aliases: Mapping[str, str]
) -> list[tuple[dict[str, Requirement], tuple[InstanceType, ...], frozenset[str]]]:
    """Pools that no overlay can tell apart are looked at once: their labels, types, and the labels that these have."""
    asked = {labels.normalize(r.key, aliases) for o in overlays for r in o.spec.requirements}
    keys: dict[int, frozenset[str]] = {}
    found: dict[tuple[object, ...], tuple[dict[str, Requirement], tuple[InstanceType, ...], frozenset[str]]] = {}
    for one in offered:
        own = {key: r for key, r in labels_of(one.pool, aliases).items() if key in asked}
        if id(one.types) not in keys:
            keys[id(one.types)] = keys_of(one.types)
        mark = (id(one.types), *(own[key].identity for key in sorted(own)))
        found.setdefault(mark, (own, one.types, keys[id(one.types)]))
    return list(found.values())
