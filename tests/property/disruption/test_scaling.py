"""Laws of static NodePools: as many nodes as they say, never beyond the limit, and the least is lost."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import labels
from kubewright.api.karpenter import NodeClaim, NodeClaimSpec, NodeClaimStatus
from kubewright.api.meta import Condition, ObjectMeta, OwnerReference
from kubewright.disruption.scaling import census, missing, surplus
from tests.builders import NOW, node_pool, pod

KINDS = ("active", "unlaunched", "replaced", "going")


def claim(name, kind, age_days=0):
    marked = (Condition(type="DisruptionReason", status="True"),) if kind == "replaced" else ()
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            creation_timestamp=NOW - timedelta(days=age_days),
            deletion_timestamp=NOW if kind == "going" else None,
        ),
        spec=NodeClaimSpec(expire_after="720h"),
        status=NodeClaimStatus(provider_id="" if kind == "unlaunched" else f"id-{name}", conditions=marked),
    )


def daemon_pod(name, **more):
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)
    return with_meta(pod(name), owner_references=(owner,), **more)


def with_meta(one, **more):
    from msgspec.structs import replace

    return replace(one, metadata=replace(one.metadata, **more))


PINNED = {labels.DO_NOT_DISRUPT: "true"}
LOADS = {
    "nothing": (),
    "daemon": (daemon_pod("d"),),
    "pinned daemon": (daemon_pod("d", annotations=PINNED),),
    "pod": (pod("p"),),
    "pods": (pod("p"), pod("q")),
    "pinned": (with_meta(pod("p"), annotations=PINNED),),
}


@st.composite
def worlds(draw):
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=8))
    owned = [claim(f"c{i}", kind, draw(st.integers(0, 30))) for i, kind in enumerate(kinds)]
    on = {c.name: LOADS[draw(st.sampled_from(sorted(LOADS)))] if c.status.provider_id else () for c in owned}
    limit = draw(st.one_of(st.none(), st.integers(0, 8)))
    pool = node_pool("fixed", replicas=draw(st.integers(0, 8)), limits=None if limit is None else {"nodes": str(limit)})
    return pool, owned, on, limit


@given(worlds())
def test_what_is_bought_fills_the_pool_and_never_breaks_the_limit(world):
    pool, owned, _, limit = world
    counted = census(owned)
    count, refused = missing(pool, counted)
    staying = len(counted.active) + len(counted.replaced)
    assert count >= 0
    assert refused >= 0
    assert staying + count + refused == max(staying, pool.spec.replicas)
    if limit is not None and count:
        assert len(owned) + count <= limit
    if refused:
        assert len(owned) + count >= limit
    bought = [claim(f"new{i}", "unlaunched") for i in range(count)]
    assert missing(pool, census([*owned, *bought]))[0] == 0, "asked again, it buys nothing more"


@given(worlds())
def test_who_goes_is_exactly_the_surplus_of_active_nodes_and_buying_never_follows(world):
    pool, owned, on, _ = world
    gone = surplus(pool, census(owned), on, NOW)
    counted = census(owned)
    assert len(gone) == max(0, len(counted.active) - pool.spec.replicas)
    assert {c.name for c in gone} <= {c.name for c in counted.active}
    left = [c for c in owned if c not in gone]
    assert surplus(pool, census(left), on, NOW) == ()
    if gone:
        assert missing(pool, census(left))[0] == 0


@given(worlds())
def test_nobody_goes_before_one_who_is_less_of_a_loss(world):
    pool, owned, on, _ = world
    gone = surplus(pool, census(owned), on, NOW)

    def loss(c):
        bound = on[c.name]
        pinned = any(p.metadata.annotations for p in bound)
        empty = not pinned and all(p.metadata.owner_references for p in bound)
        return (bool(c.status.provider_id), not empty, pinned)

    for kept in census(owned).active:
        if kept not in gone:
            assert all(loss(g) <= loss(kept) for g in gone)


def test_what_expires_soon_goes_before_what_lasts():
    pool = node_pool("fixed", replicas=1)
    owned = [claim("young", "active", 1), claim("old", "active", 29)]
    on = {c.name: LOADS["pod"] for c in owned}
    assert [c.name for c in surplus(pool, census(owned), on, NOW)] == ["old"]
