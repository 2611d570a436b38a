"""Ports that pods take on the node itself.

Source: spec/scheduling 4.7; k8s.io/kube-scheduler HostPortInfo.
"""

from collections.abc import Collection, Iterable

import msgspec

from kubewright.api.core import PodSpec

ANY_IP = ("0.0.0.0", "::")  # noqa: S104 - an address to compare with, not to listen on


class HostPort(msgspec.Struct, frozen=True, gc=False, order=True):
    port: int
    protocol: str
    ip: str

    def clashes(self, other: "HostPort") -> bool:
        """Same port and protocol, on the same address or with either on all addresses."""
        if self.port != other.port or self.protocol != other.protocol:
            return False
        return self.ip == other.ip or self.ip in ANY_IP or other.ip in ANY_IP

    def __str__(self) -> str:
        return f"IP: {self.ip}, Port: {self.port}, Proto: {self.protocol}"


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The host ports of a pod's containers and restartable init containers, sorted.

    kube-scheduler counts restartable init containers as well; the reference leaves them out, which would let it place a pod that
    is then refused.
    """
    sidecars = (c for c in spec.init_containers if c.restart_policy == "Always")
    found = {
        HostPort(p.host_port, p.protocol or "TCP", p.host_ip or ANY_IP[0])
        for c in (*spec.containers, *sidecars)
        for p in c.ports
        if p.host_port
    }
    return tuple(sorted(found))


def clash(wanted: Iterable[HostPort], taken: Collection[HostPort]) -> tuple[HostPort, HostPort] | None:
    """The first wanted port that is taken, with what takes it."""
    for mine in wanted:
        for other in taken:
            if mine.clashes(other):
                return mine, other
    return None
