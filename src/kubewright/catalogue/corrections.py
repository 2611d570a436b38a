"""Corrections applied to whole lists of instance types, once for each list.

The solver shares its columns between pools that hold the very same list, and a provider hands out the same list while nothing
changed; both stay true behind corrections.
"""

from collections.abc import Callable, Mapping, Sequence

from kubewright.api import labels
from kubewright.api.karpenter import NodePool
from kubewright.catalogue.overlays import Matcher, Overlay, corrected, is_possible, keys_of, labels_of
from kubewright.catalogue.types import InstanceType

KEPT_LISTS = 16
KEPT_TYPES = 50_000

Types = tuple[InstanceType, ...]
Matches = Callable[[InstanceType], tuple[int, ...]]


class Corrections:
    """Own prices and accepted overlays. `use` replaces the overlays; nothing else changes what `of` answers."""

    def __init__(
        self,
        well_known: frozenset[str],
        aliases: Mapping[str, str] = labels.ALIASES,
        own_price: Callable[[InstanceType], InstanceType] | None = None,
    ) -> None:
        """`own_price` is what people's own price list makes of a type; overlays come on top of it."""
        self._aliases = aliases
        self._own_price = own_price
        self._accepted: tuple[Overlay, ...] = ()
        self._matcher = Matcher(well_known)
        self._keys: dict[int, tuple[Types, frozenset[str]]] = {}
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
        self._matcher.forget(fresh)
        self._lists.clear()
        self._types.clear()

    def of(self, pool: NodePool, types: Types) -> Types:
        """`types` as the pool sees them: the same object for the same list, and `types` itself where nothing is corrected.

        Cost: nothing for a list that was asked about before; otherwise only the types that are new in it.
        """
        if not self._accepted and self._own_price is None:
            return types
        keys = self._labels_in(types)
        own = labels_of(pool, self._aliases)
        relevant = [one for one in self._accepted if is_possible(one, own, keys)]
        # Beyond that, a pool's label makes a difference only where types have it as well.
        mattering = sorted({key for one in relevant for key in one.requirements if key in own and key in keys})
        mark = (*(one.name for one in relevant), *(own[key].identity for key in mattering))
        known = self._lists.get((id(types), mark))
        if known is not None:
            return known[1]
        if len(self._types) > KEPT_TYPES:
            self._types.clear()
        about = [(one, self._matcher.of(one, own)) for one in relevant]
        found = tuple(self._one(kind, about, mark) for kind in types)
        if all(a is b for a, b in zip(found, types, strict=True)):
            found = types
        while len(self._lists) >= KEPT_LISTS:
            del self._lists[next(iter(self._lists))]
        self._lists[id(types), mark] = (types, found)
        return found

    def _one(self, kind: InstanceType, about: Sequence[tuple[Overlay, Matches]], mark: tuple[object, ...]) -> InstanceType:
        known = self._types.get((id(kind), mark))
        if known is None:
            priced = kind if self._own_price is None else self._own_price(kind)
            known = self._types[id(kind), mark] = (kind, corrected(((one, matches(kind)) for one, matches in about), priced))
        return known[1]

    def _labels_in(self, types: Types) -> frozenset[str]:
        known = self._keys.get(id(types))
        if known is None:
            while len(self._keys) >= KEPT_LISTS:
                del self._keys[next(iter(self._keys))]
            known = self._keys[id(types)] = (types, keys_of(types))
        return known[1]
