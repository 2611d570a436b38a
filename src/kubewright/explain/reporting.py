"""Recorders that listen to the solver."""

from kubewright.scheduling.refusal import Refusal
from kubewright.solver.reporter import Reporter


class Recorder(Reporter):
    """Keeps what was refused to the pods that nobody took, and what the others gave up."""

    def __init__(self) -> None:
        self.unplaced: dict[str, list[Refusal]] = {}
        self.given_up: dict[str, list[str]] = {}
        self._open: dict[str, list[Refusal]] = {}

    def considering(self, pods: tuple[str, ...]) -> None:
        for pod in pods:
            self._open[pod] = []

    def refused(self, pods: tuple[str, ...], refusal: Refusal) -> None:
        for pod in pods:
            self._open.setdefault(pod, []).append(refusal)

    def relaxed(self, pods: tuple[str, ...], given_up: str) -> None:
        for pod in pods:
            self.given_up.setdefault(pod, []).append(given_up)

    def placed(self, pods: tuple[str, ...], where: str, narrowed_from: int, narrowed_to: int) -> None:  # noqa: ARG002 - the listener's signature
        for pod in pods:
            self._open.pop(pod, None)

    def gave_up(self, pods: tuple[str, ...]) -> None:
        for pod in pods:
            self.unplaced[pod] = self._open.pop(pod, [])
