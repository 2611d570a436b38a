"""The machine that a static NodePool buys: its template, without pods.

Source: spec/disruption 3.5, 6.9.
"""

from msgspec.structs import replace

from kubewright.api import labels
from kubewright.catalogue.columns import table
from kubewright.scheduling.refusal import Refusal
from kubewright.settings import MinValuesPolicy
from kubewright.solver.build import representatives
from kubewright.solver.claims import OpenClaim
from kubewright.solver.finish import finished
from kubewright.solver.problem import PlannedClaim, Pool, Problem
from kubewright.solver.templates import Template


def template_claim(pool: Pool, problem: Problem) -> PlannedClaim | str:
    """One machine of the pool's template, or why none can be bought; `problem` lends its settings and DaemonSets."""
    name, settings = pool.node_pool.name, problem.settings
    if not pool.instance_types:
        return f"NodePool {name} has nothing to buy: {pool.problem or 'no instance types'}"
    well_known = labels.WELL_KNOWN | settings.well_known_labels
    aliases = {**labels.ALIASES, **settings.label_aliases}
    template = Template(pool.node_pool, table(pool.instance_types, well_known), representatives(problem), aliases, {})
    if not template.start.rows:
        return f"no instance type suits NodePool {name}"
    strict = settings.min_values_policy is not MinValuesPolicy.BEST_EFFORT
    claim = OpenClaim(0, f"{name}-static", template.start)
    claim.rows = template.start.rows & template.columns.plain or template.start.rows
    made = finished(claim, well_known, strict=strict)
    if isinstance(made, Refusal):
        return f"NodePool {name} cannot meet its minValues"
    # It asks for what the template says, not for what happens to be for sale now. Source: spec/scheduling 3.8.
    return replace(made, requirements={key: template.written[key] for key in sorted(template.written)})
