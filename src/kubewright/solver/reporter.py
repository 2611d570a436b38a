"""What the solver tells the outside while it thinks. The base class listens to nothing."""

from kubewright.scheduling.refusal import Refusal


class Reporter:
    """Override what you care about. Never return a value, never raise: advice is not taken."""

    wants_all = False
    """Whether to be told of every existing node and open claim that says no, which costs time."""

    def considering(self, pods: tuple[str, ...]) -> None:
        """A pod class was taken up; `pods` are its keys."""

    def refused(self, pods: tuple[str, ...], refusal: Refusal) -> None:
        """One place said no, in the order in which places were asked."""

    def relaxed(self, pods: tuple[str, ...], given_up: str) -> None:
        """Nothing took the pods as they were; they go on without `given_up`."""

    def placed(self, pods: tuple[str, ...], where: str, narrowed_from: int, narrowed_to: int) -> None:
        """Pods were placed, leaving `narrowed_to` of `narrowed_from` rows open (0, 0 on a node that exists)."""

    def gave_up(self, pods: tuple[str, ...]) -> None:
        """Every place said no, and there was no preference left to relax."""
