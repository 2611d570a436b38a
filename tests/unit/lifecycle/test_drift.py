"""When a machine counts as drifted, and why."""

from datetime import timedelta

import msgspec
import pytest

from kubewright.api import labels
from kubewright.api.karpenter import NodeSelectorRequirement
from kubewright.api.meta import find_condition
from kubewright.lifecycle import claims, drift
from kubewright.solver.problem import Pool
from tests.builders import S_TYPES, instance_type, one_of
from tests.unit.lifecycle.builders import T0, at, claim, labelled, pool

BOUGHT = {labels.INSTANCE_TYPE: "s4", labels.ZONE: "a", labels.CAPACITY_TYPE: "on-demand", labels.ARCH: "amd64"}


def bought(**more):
    made = claim(stage="Initialized")
    return labelled(made, labels={**made.metadata.labels, **BOUGHT, **more})


def asking(*requirements, hashed=None):
    made = pool()
    made = msgspec.structs.replace(
        made,
        spec=msgspec.structs.replace(
            made.spec,
            template=msgspec.structs.replace(
                made.spec.template, spec=msgspec.structs.replace(made.spec.template.spec, requirements=requirements)
            ),
        ),
    )
    return Pool(labelled(made, annotations=hashed or {}), S_TYPES)


def needs(key, operator, *values):
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def hashes(value, version="v3"):
    return {labels.NODEPOOL_HASH: value, labels.NODEPOOL_HASH_VERSION: version}


@pytest.mark.parametrize(
    ("of_claim", "of_pool", "found"),
    [
        (hashes("1"), hashes("1"), ""),
        (hashes("1"), hashes("2"), drift.NODE_POOL),
        (hashes("1", "v2"), hashes("2"), ""),
        ({}, hashes("2"), ""),
        (hashes("1"), {}, ""),
        ({labels.NODEPOOL_HASH: "1"}, hashes("2"), ""),
    ],
)
def test_only_hashes_of_one_version_are_compared(of_claim, of_pool, found):
    assert drift.reason(labelled(bought(), annotations=of_claim), asking(hashed=of_pool), T0) == found


@pytest.mark.parametrize(
    ("wanted", "drifts"),
    [
        (needs(labels.INSTANCE_TYPE, "In", "s4", "s8"), False),
        (needs(labels.INSTANCE_TYPE, "In", "s8"), True),
        (needs(labels.INSTANCE_TYPE, "NotIn", "s4"), True),
        (needs("cpu-count", "Gt", "3"), False),
        (needs("cpu-count", "Gt", "4"), True),
        (needs("cpu-count", "Lt", "4"), True),
        (needs("absent", "In", "x"), True),
        (needs("absent", "Exists"), True),
        (needs("absent", "Gt", "1"), True),
        (needs("absent", "NotIn", "x"), False),
        (needs("absent", "DoesNotExist"), False),
        (needs("cpu-count", "DoesNotExist"), True),
    ],
)
def test_every_requirement_of_the_pool_must_hold_for_the_claims_labels(wanted, drifts):
    found = drift.reason(bought(**{"cpu-count": "4"}), asking(wanted), T0)
    assert found == (drift.REQUIREMENTS if drifts else "")


def test_a_type_that_is_not_sold_any_more_drifts_after_an_hour():
    gone = Pool(asking().node_pool, tuple(t for t in S_TYPES if t.name != "s4"))
    assert drift.reason(bought(), gone, at(3600)) == ""
    assert drift.reason(bought(), gone, at(3601)) == drift.INSTANCE_TYPE
    assert drift.reason(bought(), asking(), at(3601)) == ""
    elsewhere = Pool(gone.node_pool, (*gone.instance_types, instance_type("s4", 4, 8, 0.2, zones=("b",))))
    assert drift.reason(bought(), elsewhere, at(3601)) == drift.INSTANCE_TYPE
    unknown = Pool(gone.node_pool, (), "the cloud does not answer")
    assert drift.reason(bought(), unknown, at(3601)) == "", "nothing is known of what is sold"


def test_what_is_sold_out_is_still_offered():
    (sold_out,) = (t for t in S_TYPES if t.name == "s4")
    none = tuple(msgspec.structs.replace(o, available=False) for o in sold_out.offerings)
    offered = Pool(asking().node_pool, (msgspec.structs.replace(sold_out, offerings=none),))
    assert drift.reason(bought(), offered, at(3601)) == ""


def test_a_machine_of_a_reservation_that_ended_is_an_on_demand_one():
    held = bought(**{labels.CAPACITY_TYPE: "reserved", "karpenter.k8s.aws/capacity-reservation-id": "cr-1"})
    assert drift.reason(held, asking(), at(3601)) == ""
    only_spot = instance_type("s4", 4, 8, 0.2)
    spot = tuple(o for o in only_spot.offerings if o.requirements[labels.CAPACITY_TYPE] == one_of(labels.CAPACITY_TYPE, "spot"))
    assert drift.reason(held, Pool(asking().node_pool, (msgspec.structs.replace(only_spot, offerings=spot),)), at(3601))


def test_the_first_drift_keeps_its_time_and_the_last_word_on_why():
    first = drift.marked(bought(), drift.NODE_POOL, at(10))
    second = drift.marked(first, "AMIDrift", at(20))
    found = find_condition(second.status.conditions, claims.DRIFTED)
    assert (found.reason, found.message, found.last_transition_time) == ("AMIDrift", "AMIDrift", T0 + timedelta(seconds=10))
    assert find_condition(drift.marked(second, "", at(30)).status.conditions, claims.DRIFTED) is None
