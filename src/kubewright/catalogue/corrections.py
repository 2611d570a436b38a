"""Corrections applied to whole lists of instance types, once for each list.

The solver shares its columns between pools that hold the very same list, and a provider hands out the same list while nothing
changed; both stay true behind corrections.
"""

from collections.abc import Callable, Mapping, Sequence

from kubewright.api import labels
from kubewright.api.karpenter import NodePool
from kubewright.catalogue.overlays import Overlay, corrected, labels_of
from kubewright.catalogue.types import InstanceType
from kubewright.scheduling.requirement import Requirement

KEPT_LISTS = 16
KEPT_TYPES = 50_000

Types = tuple[InstanceType, ...]


class Corrections:
    """Own prices and accepted overlays. `use` replaces the overlays; nothing else changes what `of` answers."""

    def __init__(
        self,
        well_known: frozenset[str],
        aliases: Mapping[str, str] = labels.ALIASES,
        own_price: Callable[[InstanceType], InstanceType] | None = None,
    ) -> None:
        """`own_price` is what people's own price list makes of a type; overlays come on top of it."""
        self._well_known = well_known
        self._aliases = aliases
        self._own_price = own_price
        self._accepted: tuple[Overlay, ...] = ()
        self._asked: frozenset[str] = frozenset()
        self._lists: dict[tuple[object, ...], tuple[Types, Types]] = {}
        self._types: dict[tuple[object, ...], tuple[InstanceType, InstanceType]] = {}

    @property
    def accepted(self) -> tuple[Overlay, ...]:
        return self._accepted

    def use(self, accepted: Sequence[Overlay]) -> None:
        """Correct by these overlays from now on; the first that says something wins."""
        fresh = tuple(accepted)
        if fresh == self._accepted:
            return
        self._accepted = fresh
        self._asked = frozenset(key for one in fresh for key in one.requirements)
        self._lists.clear()
        self._types.clear()

    def of(self, pool: NodePool, types: Types) -> Types:
        """`types` as the pool sees them: the same object for the same list, and `types` itself where nothing is corrected.

        Cost: nothing for a list that was asked about before; otherwise only the types that are new in it.
        """
        if not self._accepted and self._own_price is None:
            return types
        own = {key: r for key, r in labels_of(pool, self._aliases).items() if key in self._asked}
        mark = tuple(own[key].identity for key in sorted(own))
        known = self._lists.get((id(types), mark))
        if known is not None:
            return known[1]
        if len(self._types) > KEPT_TYPES:
            self._types.clear()
        found = tuple(self._one(kind, own, mark) for kind in types)
        if all(a is b for a, b in zip(found, types, strict=True)):
            found = types
        while len(self._lists) >= KEPT_LISTS:
            del self._lists[next(iter(self._lists))]
        self._lists[id(types), mark] = (types, found)
        return found

    def _one(self, kind: InstanceType, own: Mapping[str, Requirement], mark: tuple[object, ...]) -> InstanceType:
        known = self._types.get((id(kind), mark))
        if known is None:
            priced = kind if self._own_price is None else self._own_price(kind)
            known = self._types[id(kind), mark] = (kind, corrected(self._accepted, own, priced, self._well_known))
        return known[1]
