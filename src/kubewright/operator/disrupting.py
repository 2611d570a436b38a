"""Deciding about disruption as the controller wants it: settings bound."""

from typing import Protocol

from kubewright.cloud.provider import CloudProvider
from kubewright.disruption.commands import Command
from kubewright.disruption.decisions import Decisions, decide
from kubewright.disruption.memory import Memory
from kubewright.disruption.validation import Rejected, validate
from kubewright.operator.deciding import solver_settings
from kubewright.settings import Settings
from kubewright.solver.problem import Snapshot


class Disrupts(Protocol):
    """Who decides about disruption; what is asked and answered is as in `disruption.decide` and `disruption.validate`."""

    def look(self, snapshot: Snapshot, memory: Memory) -> Decisions: ...

    def confirm(self, command: Command, snapshot: Snapshot, memory: Memory) -> Command | Rejected: ...


class Disrupter:
    """`look` and `confirm` for `controllers.disruption.Disruption`."""

    def __init__(self, settings: Settings, provider: CloudProvider) -> None:
        self._settings = settings
        self._solver_settings = solver_settings(settings, provider)

    def look(self, snapshot: Snapshot, memory: Memory) -> Decisions:
        return decide(snapshot, self._settings, snapshot.now, memory, self._solver_settings)

    def confirm(self, command: Command, snapshot: Snapshot, memory: Memory) -> Command | Rejected:
        return validate(command, snapshot, self._settings, snapshot.now, memory, self._solver_settings)
