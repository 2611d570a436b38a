"""From a Problem to the parts of a pass: classes, nodes, templates, topology.

Source: spec/scheduling 3.1 to 3.4, 4.4, 5.1, 6.2 to 6.4, 6.8.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from kubewright.api import labels as names
from kubewright.api.core import Pod
from kubewright.api.meta import is_true
from kubewright.catalogue.columns import table
from kubewright.scheduling.refusal import Because, Refusal
from kubewright.scheduling.resources import has_claims
from kubewright.scheduling.taints import PREFER_NO_SCHEDULE
from kubewright.scheduling.volumes import driver_of
from kubewright.settings import PreferencePolicy
from kubewright.solver.classes import Asks, PodClass, add_variants, group
from kubewright.solver.daemons import representatives
from kubewright.solver.ground import Ground
from kubewright.solver.grouping import Grouping
from kubewright.solver.nodes import NodeTable
from kubewright.solver.problem import Pool, Problem
from kubewright.solver.support import unsupported
from kubewright.solver.templates import Template
from kubewright.solver.terms import (
    Deduction,
)

__all__ = ["Parts", "representatives", "usable"]


class Parts:
    """Everything a pass works on."""

    def __init__(self, problem: Problem, *, lenient: bool = False, ground: Ground | None = None) -> None:
        """`ground` is what passes before this one stood on; without it one is made."""
        settings = problem.settings
        self.problem = problem
        self.ground = ground or Ground(problem)
        assert self.ground.is_of(problem), "a ground serves only the problem that it was made of"
        self.aliases = self.ground.aliases
        self.well_known = names.WELL_KNOWN | settings.well_known_labels
        self.storage = self.ground.storage
        self.cache = self.ground.cache
        self.daemons = self.ground.daemons
        self.pools = usable(problem.pools)
        self.templates, self.without_types = self._templates()
        self.table = self._nodes()
        self.classes = self._classes()
        grouping = Grouping(problem, self.classes, self.table, self.templates, self.daemons, self.aliases, lenient=lenient)
        self.topology = grouping.topology

    def _templates(self) -> tuple[list[Template], list[Refusal]]:
        used = self.ground.used
        templates: list[Template] = []
        left_out: list[Refusal] = []
        for pool in self.pools:
            name = pool.node_pool.name
            if not pool.instance_types:
                left_out.append(Refusal(Because.NO_POOL, name, "", pool.problem or "no instance types"))
                continue
            columns = table(pool.instance_types, self.well_known)
            slack = self.problem.settings.slack
            template = Template(pool.node_pool, columns, self.daemons, self.aliases, used.get(name, {}), slack)
            unmet = template.start.unmet(template.start.rows)
            relaxed = self.problem.settings.min_values_policy == "BestEffort"
            if not template.start.rows or (unmet and not relaxed):
                because = Because.MIN_VALUES if unmet and template.start.rows else Because.INSTANCE_TYPE
                left_out.append(Refusal(because, name, "", "no instance type suits the NodePool", {"pool": "empty"}))
                continue
            templates.append(template)
        return templates, left_out

    def _nodes(self) -> NodeTable:
        return self.ground.table()

    def _classes(self) -> list[PodClass]:
        settings = self.problem.settings
        preferences = settings.preference_policy is PreferencePolicy.RESPECT
        prefer_taints = any(
            t.effect == PREFER_NO_SCHEDULE for p in self.pools for t in p.node_pool.spec.template.spec.taints or ()
        )
        asks = Asks()
        classes = group(self._with_default_spread())
        for one in classes:
            if has_claims(one.spec):
                text = "pod has Dynamic Resource Allocation requirements that are not yet supported by Karpenter"
                one.refusal = Refusal(Because.UNSUPPORTED, "", "spec.resourceClaims", text, {"field": "spec.resourceClaims"})
                continue
            one.refusal = unsupported(one.spec)
            if one.refusal is not None:
                continue
            add_variants(one, asks, self.storage, preferences=preferences, prefer_taints=prefer_taints, known=self.aliases)
            drivers: dict[str, set[str]] = {}
            for key in one.claims:
                driver = driver_of(key, self.storage)
                if driver:
                    drivers.setdefault(driver, set()).add(key)
            one.drivers = {d: frozenset(keys) for d, keys in sorted(drivers.items())}
        return classes

    def _with_default_spread(self) -> Sequence[Pod]:
        """The pods to be placed, with the cluster's default spread on those that write none. Source: spec/scheduling 6.10."""
        constraints = self.problem.settings.default_constraints
        if not constraints:
            return self.problem.pods
        around = self.problem.surroundings
        deduction = Deduction(
            constraints, around.services, {r.key: r for r in around.replica_sets}, {s.key: s for s in around.stateful_sets}
        )
        found = []
        for pod in self.problem.pods:
            spreads = deduction.spreads(pod)
            found.append(replace(pod, spec=replace(pod.spec, topology_spread_constraints=spreads)) if spreads else pod)
        return found


def usable(pools: Iterable[Pool]) -> list[Pool]:
    """Dynamic, Ready pools that are not going away, heaviest first, ties by later name. Source: spec/scheduling 3.1."""
    fit = [
        p
        for p in pools
        if p.node_pool.spec.replicas is None
        and p.node_pool.metadata.deletion_timestamp is None
        and is_true(p.node_pool.status.conditions, "Ready")
    ]
    fit.sort(key=lambda p: p.node_pool.name, reverse=True)
    fit.sort(key=lambda p: p.node_pool.spec.weight or 0, reverse=True)
    return fit
