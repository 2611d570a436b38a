"""A record solved again, and what came out otherwise."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from kubewright.packing import plan as planned
from kubewright.records.record import Record
from kubewright.records.scrub import scrubbed
from kubewright.scheduling.refusal import Refusal
from kubewright.settings import Settings
from kubewright.solver.problem import Plan, PlannedClaim, Problem

_encoder = msgspec.json.Encoder(order="sorted")


class Difference(msgspec.Struct, frozen=True):
    """One thing that is not as it was; "" where there is none."""

    about: str
    """A pod, a planned claim, a node, or the plan as a whole."""
    field: str
    then: str
    now: str


class Replay(msgspec.Struct, frozen=True, rename="camel"):
    identical: bool
    """To the byte."""
    made_by: str
    """The version of kubewright that wrote the record."""
    pods: int
    claims: int
    """Machines to buy, as recorded."""
    usd_per_hour: float
    differences: tuple[Difference, ...] = ()


def replay(record: Record, solve: Callable[[Problem, Settings], Plan] = planned) -> Replay:
    """Solve the record's problem again with its settings and compare.

    Cost: one pass.
    """
    failure, again = "", Plan()
    try:
        # Through JSON, as the recorded one went: there a price of 0 and one of 0.0 are the same.
        again = msgspec.json.decode(_encoder.encode(scrubbed(solve(record.problem, record.settings))), type=Plan)
    except Exception as error:  # noqa: BLE001 — a failure is an answer here, and may be the one that was recorded
        failure = f"{type(error).__name__}: {error}"
    same = failure == record.failure and _encoder.encode(again) == _encoder.encode(record.plan)
    found = () if same else tuple(_differences(record, again, failure))
    plan = record.plan
    return Replay(same, record.made_by, len(record.problem.pods), len(plan.claims), plan.usd_per_hour, found)


def _differences(record: Record, again: Plan, failure: str) -> Iterator[Difference]:
    then, now = record.plan, again
    if failure != record.failure:
        yield Difference("plan", "failure", record.failure or "none", failure or "none")
    for field in ("usd_per_hour", "bound_usd_per_hour", "steps"):
        yield from _if_other("plan", field, _number(getattr(then, field)), _number(getattr(now, field)))
    yield from _if_other("plan", "machines", str(len(then.claims)), str(len(now.claims)))
    was, is_now = _places(then), _places(now)
    for key in sorted(was.keys() | is_now.keys()):
        yield from _if_other(f"pod {key}", "place", was.get(key, "not answered"), is_now.get(key, "not answered"))
    for key in sorted(then.unplaced.keys() & now.unplaced.keys()):
        yield from _if_other(f"pod {key}", "refusals", _reasons(then.unplaced[key]), _reasons(now.unplaced[key]))
    old, new = {c.name: c for c in then.claims}, {c.name: c for c in now.claims}
    for name in sorted(old.keys() & new.keys()):
        yield from _of_claim(old[name], new[name])
    for name in sorted(old.keys() ^ new.keys()):
        yield Difference(f"claim {name}", "bought", "yes" if name in old else "no", "yes" if name in new else "no")
    if list(old) != list(new) and old.keys() == new.keys():
        yield Difference("plan", "order of claims", " ".join(old), " ".join(new))


def _of_claim(then: PlannedClaim, now: PlannedClaim) -> Iterator[Difference]:
    for field in then.__struct_fields__:
        was, is_now = getattr(then, field), getattr(now, field)
        if was != is_now:
            yield Difference(f"claim {then.name}", field, _shown(field, was, is_now), _shown(field, is_now, was))


def _shown(field: str, value: object, other: object) -> str:
    """Short: of long lists only what the other side lacks."""
    if field in ("pods", "instance_types") and isinstance(value, tuple) and isinstance(other, tuple):
        own = [str(v) for v in value if v not in set(other)]
        if not own:
            return f"{len(value)}, in this order: {' '.join(map(str, value[:3]))}{' …' if len(value) > 3 else ''}"
        return f"{len(value)}, of them only here: {' '.join(own[:5])}{' …' if len(own) > 5 else ''}"
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return ", ".join(f"{k}: {v}" for k, v in sorted(value.items()) if other.get(k) != v) or "nothing else"
    return _number(value) if isinstance(value, float) else str(value)


def _places(plan: Plan) -> dict[str, str]:
    found = {key: f"node {node}" for node, pods in plan.existing.items() for key in pods}
    found |= {key: f"claim {claim.name}" for claim in plan.claims for key in claim.pods}
    return found | dict.fromkeys(plan.unplaced, "nowhere")


def _reasons(refusals: tuple[Refusal, ...]) -> str:
    return "; ".join(f"{r.where or 'all'}: {r.because.value} {r.wanted} {r.found}".rstrip() for r in refusals)


def _number(value: float) -> str:
    """All digits: a difference in the last one is a difference."""
    return repr(value)


def _if_other(about: str, field: str, then: str, now: str) -> Iterator[Difference]:
    if then != now:
        yield Difference(about, field, then, now)
