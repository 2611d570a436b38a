"""The solver as the provisioner wants it: settings bound, pods selected, refusals in words."""

from collections.abc import Mapping

from kubewright.cloud.provider import CloudProvider
from kubewright.explain.karpenter import karpenter_text
from kubewright.operator import spread
from kubewright.packing import plan
from kubewright.scheduling.refusal import Refusal
from kubewright.settings import Settings
from kubewright.solver.committed import commitments_of
from kubewright.solver.problem import Plan, Problem, Snapshot, SolverSettings
from kubewright.solver.select import select


def solver_settings(settings: Settings, provider: CloudProvider) -> SolverSettings:
    """What of the settings, and of the provider's vocabulary, the solver depends on."""
    return SolverSettings(
        preference_policy=settings.preference_policy,
        min_values_policy=settings.min_values_policy,
        ignore_dra_requests=settings.ignore_dra_requests,
        slack=settings.packing_slack,
        default_constraints=spread.read(settings.scheduler_config),
        feature_gates=settings.feature_gates,
        well_known_labels=provider.well_known_labels,
        label_aliases=provider.label_aliases,
        commitments=commitments_of(settings.prices),
    )


class Solver:
    """`ask`, `decide` and `say` for `controllers.provisioner.Provisioner`."""

    def __init__(self, settings: Settings, provider: CloudProvider) -> None:
        self._settings = settings
        self._solver_settings = solver_settings(settings, provider)

    def ask(self, snapshot: Snapshot) -> tuple[Problem, Mapping[str, tuple[Refusal, ...]]]:
        """The problem, and the pods that are not planned for with the reason."""
        found = select(snapshot, self._solver_settings)
        return found.problem, {key: (refusal,) for key, refusal in found.ignored.items()}

    def decide(self, problem: Problem) -> Plan:
        return plan(problem, self._settings)

    def say(self, key: str, refusals: tuple[Refusal, ...]) -> str:
        """Karpenter's words; "" for a pod that wants none of our nodes, of which nobody needs to hear."""
        del key
        if any(refusal.facts.get("opt-out") for refusal in refusals):
            return ""
        return "; ".join(karpenter_text(refusal) for refusal in refusals)
