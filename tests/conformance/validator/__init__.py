"""Kubernetes' own rules, checked slowly and plainly on a problem and an answer in the oracle's JSON.

Imports nothing of kubewright. The question is: once every planned node is there, does each placed pod stand where kube-scheduler
could have put it, whichever of the listed instance types and label values is bought; and does every new node keep to its pool?
"""

from tests.conformance.validator.alone import alone, crowded
from tests.conformance.validator.amounts import J
from tests.conformance.validator.contract import contract
from tests.conformance.validator.places import Cluster
from tests.conformance.validator.selecting import key_of
from tests.conformance.validator.together import together

__all__ = ["violations"]


def violations(problem: J, answer: J, *, every_domain: bool = False) -> list[tuple[str, str]]:
    """(pod, what is wrong) for every placed pod that stands where it could not, sorted.

    kube-scheduler spreads over the domains that have nodes. With `every_domain` those where NodePools could buy one count too, as
    they do for who plans nodes.
    """
    cluster = Cluster(problem, answer)
    found: set[tuple[str, str]] = set(contract(answer, cluster))
    seen: set[str] = set()
    for place in cluster.places:
        found.update(place.wrong)
        for name in sorted(place.put):
            if name in seen:
                found.add((name, "placed twice"))
            seen.add(name)
        names = [key_of(p) for p in place.pods]
        found.update((name, "placed twice") for name in place.put if names.count(name) > 1)
        found.update((key_of(p), why) for p, why in crowded(place, cluster))
        for pod in place.pods:
            if key_of(pod) in place.put:
                found.update((key_of(pod), why) for why in alone(pod, place, cluster))
    found.update(together(cluster, every_domain=every_domain))
    return sorted(found)
