"""NodeOverlays: corrections of what instance types cost and have, and which of them may stand together.

Every overlay is judged as a whole and for all pools before any of it counts. Overlays of greater weight win; those of equal
weight must not say anything about the same price or resource, or the one whose name comes first in the alphabet is refused.
Source: spec/scheduling 9.1. Differs on purpose: a conflict over capacity is seen with every overlay of the weight, not only with
the one looked at last; corrections reach types that came after the overlay was judged; a corrected type keeps everything else.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from kubewright.api import labels, quantity, validation
from kubewright.api.karpenter import NodeOverlay, NodePool
from kubewright.api.quantity import Resources
from kubewright.api.validation import Vocabulary
from kubewright.catalogue.types import InstanceType, Offering
from kubewright.scheduling.requirement import DOES_NOT_EXIST, NOT_IN, Requirement
from kubewright.scheduling.requirements import Requirements, agree, of_expressions, of_labels

_NEGATIVE = (NOT_IN, DOES_NOT_EXIST)

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


def judge(overlays: Iterable[NodeOverlay], offered: Iterable[Offered], vocabulary: Vocabulary = validation.AWS) -> Judgement:
    """Which overlays count, over all pools together. Pools that cannot be asked are left out of `offered` and stop nobody."""
    verdicts: dict[str, Verdict] = {}
    accepted: list[Overlay] = []
    catalogues = _different(offered, overlays := tuple(overlays), vocabulary.aliases)
    priced: dict[tuple[int, int, int], int] = {}
    """(catalogue, type, offering) → the least weight that has had a say about its price."""
    given: dict[tuple[int, int, str], int] = {}
    """(catalogue, type, resource) → the least weight that has had a say about it."""
    for written in sorted(sorted(overlays, key=lambda o: o.name, reverse=True), key=lambda o: -(o.spec.weight or 0)):
        problems = validation.overlay_problems(written, vocabulary)
        try:
            one = Overlay.of(written, vocabulary.aliases)
        except ValueError as error:
            problems = problems or (str(error),)
        if problems:
            verdicts[written.name] = Verdict(RUNTIME_VALIDATION, "; ".join(problems))
            continue
        prices: list[tuple[int, int, int]] = []
        resources: list[tuple[int, int, str]] = []
        for c, (own, types) in enumerate(catalogues):
            for t, kind in enumerate(types):
                matched = matching(one, own, kind, vocabulary.well_known)
                if matched and one.price:
                    prices += [(c, t, o) for o in matched]
                if matched:
                    resources += [(c, t, name) for name in one.capacity]
        if any(priced.get(key) == one.weight for key in prices) or any(given.get(key) == one.weight for key in resources):
            verdicts[written.name] = Verdict(CONFLICT, CONFLICT_TEXT)
            continue
        priced.update(dict.fromkeys(prices, one.weight))
        given.update(dict.fromkeys(resources, one.weight))
        verdicts[written.name] = Verdict()
        accepted.append(one)
    return Judgement(dict(sorted(verdicts.items())), tuple(accepted))


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


def corrected(accepted: Sequence[Overlay], own: Requirements, kind: InstanceType, well_known: frozenset[str]) -> InstanceType:
    """The type as the overlays leave it; `kind` itself if none is about it. The first in `accepted` to say something wins."""
    prices: dict[int, float] = {}
    capacity: dict[str, int] = {}
    for one in accepted:
        matched = matching(one, own, kind, well_known)
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
    return replace(kind, offerings=offerings, capacity=with_capacity(kind.capacity, capacity), capacity_overlaid=True)


def with_capacity(before: Resources, more: Resources) -> dict[str, int]:
    return {**before, **more}


def labels_of(pool: NodePool, aliases: Mapping[str, str] = labels.ALIASES) -> dict[str, Requirement]:
    """What a pool says of its nodes by itself: its name and its template's labels."""
    return of_labels({**(pool.spec.template.metadata.labels or {}), labels.NODEPOOL: pool.name}, aliases)


def _different(
    offered: Iterable[Offered], overlays: Sequence[NodeOverlay], aliases: Mapping[str, str]
) -> list[tuple[dict[str, Requirement], tuple[InstanceType, ...]]]:
    """Pools that no overlay can tell apart are looked at once."""
    keys = {labels.normalize(r.key, aliases) for o in overlays for r in o.spec.requirements}
    found: dict[tuple[object, ...], tuple[dict[str, Requirement], tuple[InstanceType, ...]]] = {}
    for one in offered:
        own = {key: r for key, r in labels_of(one.pool, aliases).items() if key in keys}
        found.setdefault((id(one.types), *(own[key].identity for key in sorted(own))), (own, one.types))
    return list(found.values())
