"""From open claims to the machines to buy.

Source: spec/scheduling 3.8, 5.9.
"""

from collections.abc import Iterable, Mapping, Sequence

from kubewright.api import labels as names
from kubewright.catalogue.columns import NO_PRICE, Columns, reservation_key
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.requirement import Requirement
from kubewright.scheduling.requirements import add
from kubewright.solver.claims import OpenClaim
from kubewright.solver.committed import COMMITMENT, Committed
from kubewright.solver.problem import PlannedClaim
from kubewright.solver.templates import Cut

MAX_INSTANCE_TYPES = 600
"""Source: spec/scheduling 3.8 (a provider may cut further when it launches)."""

_SIMULATED = (names.HOSTNAME, names.REGISTERED, names.INITIALIZED)


def finished(
    claim: OpenClaim, well_known: frozenset[str], *, strict: bool, committed: Committed | None = None
) -> PlannedClaim | Refusal:
    """The claim as it is to be created; a refusal when cutting its type list broke minValues and that is not allowed."""
    template, state = claim.template, claim.state
    columns = template.columns
    requirements = {k: r for k, r in state.requirements.items() if k not in _SIMULATED}
    kinds = tuple(k for k in state.kinds if not columns.kinds[k].reservation or columns.kinds[k].reservation in claim.held)
    if claim.held:
        kinds = tuple(k for k in kinds if columns.kinds[k].reservation)
        requirements[names.CAPACITY_TYPE] = Requirement(names.CAPACITY_TYPE, frozenset((names.RESERVED,)))
        for index in kinds:
            key = reservation_key(columns.kinds[index].requirements)
            if key:
                requirements[key] = Requirement(key, claim.held)
    commitment = committed.holding(claim.index) if committed is not None else None
    if committed is not None and commitment is not None:
        covered = committed.bought(claim.index, state, claim.rows)
        kinds = tuple(sorted({c.kind for c in covered}))
        cut = _cut(columns, [(c.usd, c.row) for c in covered], claim.rows)
        zone = committed.rows[commitment].zone
        if zone:
            add(requirements, Requirement(names.ZONE, frozenset((zone,))))
    else:
        known = template.cuts.get((kinds, claim.rows))
        if known is None:
            known = template.cuts[kinds, claim.rows] = _cut(columns, columns.by_price(kinds), claim.rows)
        cut = known
    kept, price = cut.rows, cut.usd
    unmet = state.unmet(kept)
    if unmet and strict and not claim.min_values_relaxed:
        facts = {key: f"{found} of {wanted}" for key, wanted, found in unmet}
        return Refusal(Because.MIN_VALUES, template.name, "", "", {"keys": " ".join(sorted(facts)), "truncated": "true", **facts})
    for key, _, found in unmet:
        before = requirements[key]
        requirements[key] = Requirement(key, before.values, before.complement, before.at_least, before.at_most, found)
    add(requirements, cut.listed)
    sold: set[str] = set()
    for index in kinds:
        offered = columns.kinds[index].requirements.get(names.CAPACITY_TYPE)
        if columns.kinds[index].rows & kept and offered is not None:
            sold |= offered.values
    if sold and not claim.held:
        add(requirements, Requirement(names.CAPACITY_TYPE, frozenset(sold)))
    pool = template.pool.spec.template
    return PlannedClaim(
        name=claim.name,
        node_pool=template.name,
        requirements={key: requirements[key] for key in sorted(requirements)},
        labels=_labels(template.labels, requirements, well_known),
        annotations={**(pool.metadata.annotations or {}), **_overlays_applied(columns, kept, kinds)}
        | ({COMMITMENT: committed.rows[commitment].name} if committed is not None and commitment is not None else {}),
        taints=template.taints,
        startup_taints=pool.spec.startup_taints or (),
        requests=dict(sorted(claim.all_requests().items())),
        instance_types=cut.types,
        pods=tuple(sorted(pod.key for one, start, end in claim.placed for pod in one.pods[start:end])),
        usd_per_hour=price if price != NO_PRICE else 0.0,
        expire_after=pool.spec.expire_after,
        termination_grace_period=pool.spec.termination_grace_period,
        min_values_relaxed=claim.min_values_relaxed and bool(unmet),
    )


def _cut(columns: Columns, priced: Iterable[tuple[float, int]], rows: int) -> Cut:
    """The cheapest types of `rows`, as many as a claim may name; `priced` is (USD per hour, row), cheapest first."""
    listed: dict[str, None] = {}
    kept = 0
    price = NO_PRICE
    for usd, row in priced:
        if not rows >> row & 1:
            continue
        price = min(price, usd)
        name = columns.rows[row].type.name
        if name not in listed:
            if len(listed) == MAX_INSTANCE_TYPES:
                break
            listed[name] = None
        kept |= 1 << row
    return Cut(tuple(listed), kept, price, Requirement(names.INSTANCE_TYPE, frozenset(listed)))


def _overlays_applied(columns: Columns, kept: int, kinds: Sequence[int]) -> dict[str, str]:
    """Tells the provider that the claim was planned with corrected prices or capacity. Source: spec/scheduling 3.8, step 4."""
    found: dict[str, str] = {}
    if any(columns.kinds[k].overlaid & kept for k in kinds):
        found[names.PRICE_OVERLAY_APPLIED] = "true"
    if columns.capacity_overlaid & kept:
        found[names.CAPACITY_OVERLAY_APPLIED] = "true"
    return found


def _labels(own: Mapping[str, str], requirements: Mapping[str, Requirement], well_known: frozenset[str]) -> dict[str, str]:
    """The template's labels and a value for every custom key. Well-known keys are the provider's to answer."""
    labels = dict(own)
    for key, one in requirements.items():
        if key in well_known or key in labels or names.is_restricted(key, well_known):
            continue
        value = one.any()
        if value:
            labels[key] = value
    return dict(sorted(labels.items()))
