"""What plans cost, what no plan could undercut, and what first fit would have cost: one value, as text and as JSON."""

from collections.abc import Iterable

import msgspec

from kubewright.solver.problem import Plan


class Cost(msgspec.Struct, frozen=True, rename="camel"):
    """Of one plan, or of several together; USD per hour."""

    usd_per_hour: float = 0.0
    """Of the machines to buy, and what their nodes cost beyond that."""
    bound_usd_per_hour: float = 0.0
    """No plans for the same pods cost less; 0: not computed."""
    gap: float = 0.0
    """Share by which the cost may lie above the least possible."""
    first_fit_usd_per_hour: float = 0.0
    """What first fit would have cost; 0: not asked."""

    def plus(self, other: "Cost") -> "Cost":
        usd = self.usd_per_hour + other.usd_per_hour
        least = self.bound_usd_per_hour + other.bound_usd_per_hour
        gap = max(0.0, usd / least - 1) if least > 0 else 0.0
        return Cost(usd, least, gap, self.first_fit_usd_per_hour + other.first_fit_usd_per_hour)


def cost(plan: Plan) -> Cost:
    usd = plan.usd_per_hour + plan.node_usd_per_hour
    return Cost(usd, plan.bound_usd_per_hour, plan.gap, plan.first_fit_usd_per_hour)


def together(plans: Iterable[Plan]) -> Cost:
    total = Cost()
    for one in plans:
        total = total.plus(cost(one))
    return total


def text(one: Cost) -> str:
    """As "$4.9000 an hour, at least $4.8000 is needed (gap 2.1 %), first fit would have cost $5.2000"."""
    said = f"${one.usd_per_hour:.4f} an hour"
    if one.bound_usd_per_hour:
        said += f", at least ${one.bound_usd_per_hour:.4f} is needed (gap {100 * one.gap:.1f} %)"
    if one.first_fit_usd_per_hour:
        said += f", first fit would have cost ${one.first_fit_usd_per_hour:.4f}"
    return said
