"""What pools can buy: asked of the provider, and corrected by people's own prices and NodeOverlays.

Overlays are judged anew only when one of them, a pool's labels or a list of types changed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from msgspec.structs import replace

from kubewright.api import labels, validation
from kubewright.api.karpenter import NodeOverlay, NodePool
from kubewright.api.validation import Vocabulary
from kubewright.catalogue.corrections import Corrections
from kubewright.catalogue.overlays import Matcher, Offered, Verdict, judge
from kubewright.catalogue.prices import own_prices
from kubewright.catalogue.types import InstanceType
from kubewright.cloud.provider import CloudProvider
from kubewright.errors import KubewrightError
from kubewright.settings import PriceRow
from kubewright.solver.problem import Pool


class Correcting:
    """Remembers what was judged last, so that a look-up of unchanged lists costs nothing."""

    def __init__(
        self, provider: CloudProvider, prices: Sequence[PriceRow] = (), failed: Callable[[Exception], None] = lambda _: None
    ) -> None:
        """`prices` are people's own; NodeOverlays correct what these make of the cloud's.

        `failed` hears of errors that the provider should not have raised.
        """
        self._provider = provider
        self._failed = failed
        self._log = structlog.get_logger("kubewright.state")
        self._vocabulary = Vocabulary(
            labels.WELL_KNOWN | provider.well_known_labels,
            validation.AWS.domains,
            {**labels.ALIASES, **provider.label_aliases},
            validation.AWS.values,
        )
        self._corrections = Corrections(self._vocabulary.well_known, self._vocabulary.aliases, own_prices(prices))
        self._matcher = Matcher(self._vocabulary.well_known)
        self._judged: tuple[object, ...] = ()
        self._lists: Sequence[Offered] = ()
        """Kept alive, so that identities in `_judged` stay theirs."""
        self._verdicts: Mapping[str, Verdict] = {}
        self._known: frozenset[tuple[str, str, int]] = frozenset()

    def verdict(self, overlay: NodeOverlay) -> Verdict | None:
        """What became of exactly this overlay in this generation; None if it has not been judged."""
        return self._verdicts.get(overlay.name) if _identity(overlay) in self._known else None

    async def ask(self, pools: Iterable[NodePool], overlays: Sequence[NodeOverlay]) -> tuple[Pool, ...]:
        """What each of these pools can buy now, in their order; one that cannot be asked says why and holds up nobody."""
        found: list[Pool] = []
        for pool in pools:
            try:
                found.append(Pool(pool, await self._provider.instance_types(pool)))
            except KubewrightError as error:
                found.append(Pool(pool, problem=str(error)))
            except Exception as error:  # noqa: BLE001 — a provider may be anybody's; its bugs must not end the operator
                self._log.error(
                    "the provider failed to say what a NodePool can buy", nodepool=pool.name, error=repr(error), exc_info=error
                )
                self._failed(error)
                found.append(Pool(pool, problem=f"the cloud provider failed: {error!r}"))
        if overlays or self._known:
            self.judge(overlays, found)
        return tuple(self.corrected(pool) for pool in found)

    def judge(self, overlays: Sequence[NodeOverlay], pools: Sequence[Pool]) -> None:
        """Decide which overlays count, over all pools that can be asked."""
        offered = [Offered(p.node_pool, p.instance_types) for p in pools if p.instance_types]
        mark = (
            tuple(_identity(o) for o in overlays),
            tuple((o.pool.name, o.pool.spec.template.metadata.labels, id(o.types)) for o in offered),
        )
        if mark == self._judged:
            return
        judged = judge(overlays, offered, self._vocabulary, self._matcher)
        self._judged, self._lists, self._verdicts = mark, offered, judged.verdicts
        self._known = frozenset(_identity(o) for o in overlays)
        self._corrections.use(judged.accepted)

    def corrected(self, pool: Pool) -> Pool:
        found = self.of(pool.node_pool, pool.instance_types)
        return pool if found is pool.instance_types else replace(pool, instance_types=found)

    def of(self, pool: NodePool, types: tuple[InstanceType, ...]) -> tuple[InstanceType, ...]:
        return self._corrections.of(pool, types)


def _identity(overlay: NodeOverlay) -> tuple[str, str, int]:
    return overlay.name, overlay.metadata.uid, overlay.metadata.generation
