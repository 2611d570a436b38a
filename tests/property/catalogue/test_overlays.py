"""Laws of NodeOverlays, against a plain reading of the rule."""

from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import labels as names
from kubewright.api.karpenter import NodeOverlay, NodeOverlaySpec
from kubewright.api.meta import ObjectMeta
from kubewright.api.quantity import parse
from kubewright.api.validation import CORE
from kubewright.catalogue.corrections import Corrections
from kubewright.catalogue.overlays import CONFLICT, Offered, Overlay, adjusted, judge, labels_of, matching
from kubewright.scheduling.requirements import both, compatible
from tests.builders import S_TYPES, needs, node_pool

KNOWN = names.WELL_KNOWN
GPU = "example.com/gpu"
POOLS = (node_pool("a"), node_pool("b", labels={"team": "x"}), node_pool("c", labels={"team": "y"}))
TYPES = S_TYPES[:3]

requirements = st.lists(
    st.sampled_from(
        (
            needs(names.INSTANCE_TYPE, "s2", "s4"),
            needs(names.INSTANCE_TYPE, "s4", operator="NotIn"),
            needs(names.ZONE, "a"),
            needs(names.ZONE, "a", "b", operator="NotIn"),
            needs(names.CAPACITY_TYPE, "spot"),
            needs(names.NODEPOOL, "a", "b"),
            needs("team", "x"),
            needs("team", operator="Exists"),
            needs("team", operator="DoesNotExist"),
            needs("nobody/has", operator="Exists"),
            needs("nobody/has", "1", operator="NotIn"),
        )
    ),
    max_size=3,
).map(tuple)
changes = st.sampled_from(({}, {"price": "0.07"}, {"price_adjustment": "-10%"}, {"price_adjustment": "+0.5"}, {"price": "0"}))
capacities = st.sampled_from(({}, {GPU: "2"}, {"example.com/x": "1"}, {GPU: "2", "example.com/x": "3"}))


@st.composite
def overlay_sets(draw):
    found = []
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)):
        spec = {"requirements": draw(requirements), "weight": draw(st.sampled_from((None, 1, 5))), "capacity": draw(capacities)}
        found.append(NodeOverlay(metadata=ObjectMeta(name=name), spec=NodeOverlaySpec(**spec, **draw(changes))))
    return found


def offered():
    return [Offered(pool, TYPES) for pool in POOLS]


def plainly_matching(one, pool, kind):
    base = both(labels_of(pool), kind.requirements)
    if compatible(base, one.requirements) is not None:
        return ()
    return tuple(i for i, o in enumerate(kind.offerings) if compatible(one.requirements, o.requirements, KNOWN) is None)


@given(requirements, st.sampled_from(POOLS), st.sampled_from(TYPES))
def test_what_an_overlay_is_about_is_what_the_algebra_says(asked, pool, kind):
    one = Overlay.of(NodeOverlay(metadata=ObjectMeta(name="o"), spec=NodeOverlaySpec(requirements=asked, price="1")))
    assert matching(one, labels_of(pool), kind, KNOWN) == plainly_matching(one, pool, kind)


@given(overlay_sets(), st.randoms(use_true_random=False))
def test_the_order_of_pools_and_overlays_does_not_matter(overlays, chance):
    shuffled, pools = list(overlays), offered()
    chance.shuffle(shuffled)
    chance.shuffle(pools)
    assert judge(shuffled, pools, CORE) == judge(overlays, offered(), CORE)


@given(overlay_sets())
def test_every_overlay_stands_or_falls_whole_and_equals_never_overlap(overlays):
    """A plain model: heaviest first, later names first; a claim on what an equal has claimed refuses the whole."""
    verdicts = judge(overlays, offered(), CORE).verdicts
    assert list(verdicts) == sorted(o.name for o in overlays)
    claimed: dict[object, int] = {}
    for written in sorted(sorted(overlays, key=lambda o: o.name, reverse=True), key=lambda o: -(o.spec.weight or 0)):
        one = Overlay.of(written)
        mine = {
            (pool.name, kind.name, what)
            for pool in POOLS
            for kind in TYPES
            for offerings in [plainly_matching(one, pool, kind)]
            for what in ((*offerings,) if one.price else ()) + ((*one.capacity,) if offerings else ())
        }
        clash = any(claimed.get(key) == one.weight for key in mine)
        assert (verdicts[one.name].reason == CONFLICT) is clash
        if not clash:
            claimed.update(dict.fromkeys(mine, one.weight))


@given(overlay_sets())
def test_a_type_is_corrected_by_the_first_that_is_about_it_and_by_nothing_else(overlays):
    accepted = judge(overlays, offered(), CORE).accepted
    corrections = Corrections(KNOWN)
    corrections.use(accepted)
    for pool in POOLS:
        found = corrections.of(pool, TYPES)
        assert corrections.of(pool, TYPES) is found, "the same list stays the same list"
        for before, after in zip(TYPES, found, strict=True):
            hits = [(one, plainly_matching(one, pool, before)) for one in accepted]
            for i, offering in enumerate(before.offerings):
                says = [one.price for one, matched in hits if i in matched and one.price]
                assert after.offerings[i].price == (adjusted(offering.price, says[0]) if says else offering.price)
                assert after.offerings[i].price_overlaid is bool(says)
                assert after.offerings[i].requirements is offering.requirements
            more: dict[str, int] = {}
            for one, matched in hits:
                if matched:
                    more = {**one.capacity, **more}
            assert after.capacity == {**before.capacity, **more}
            assert after.capacity_overlaid is bool(more)
            if not more and after.offerings == before.offerings:
                assert after is before


@given(st.floats(0, 100), st.sampled_from(("0", "3.5", "+0.25", "-0.25", "-7", "+10%", "-10%", "-100%", "+.5%")))
def test_prices_never_fall_below_nothing_and_changes_go_their_way(price, change):
    after = adjusted(price, change)
    assert after >= 0
    if change.startswith("+"):
        assert after >= price
    if change.startswith("-"):
        assert after <= price
    if change == "-100%":
        assert after == 0


def test_pools_alike_share_a_corrected_list_and_pools_nobody_speaks_of_keep_theirs():
    one = NodeOverlay(metadata=ObjectMeta(name="o"), spec=NodeOverlaySpec(requirements=(needs("team", "x"),), price="1"))
    corrections = Corrections(KNOWN)
    corrections.use(judge([one], offered(), CORE).accepted)
    twin = node_pool("twin", labels={"team": "x"})
    assert corrections.of(POOLS[1], TYPES) is corrections.of(twin, TYPES)
    assert corrections.of(POOLS[0], TYPES) is corrections.of(POOLS[2], TYPES) is TYPES


def test_what_validation_refuses_has_its_words_and_stops_nobody_else():
    bad = NodeOverlay(
        metadata=ObjectMeta(name="bad"),
        spec=NodeOverlaySpec(requirements=(needs("karpenter.sh/made-up", "x"),), capacity={"cpu": "3"}),
    )
    good = NodeOverlay(metadata=ObjectMeta(name="good"), spec=NodeOverlaySpec(price="1", capacity={GPU: 4}))
    judged = judge([bad, good], offered(), CORE)
    assert judged.verdicts["bad"].reason == "RuntimeValidation"
    assert "karpenter.sh/made-up" in judged.verdicts["bad"].message
    assert '"cpu" in resource' in judged.verdicts["bad"].message
    assert [one.name for one in judged.accepted] == ["good"]
    assert judged.accepted[0].capacity == {GPU: parse(4)}


def test_of_equals_the_later_name_stands_and_three_over_one_resource_are_seen():
    def one(name, capacity):
        return NodeOverlay(metadata=ObjectMeta(name=name), spec=NodeOverlaySpec(weight=5, capacity=capacity))

    judged = judge([one("x", {GPU: "1"}), one("y", {"example.com/x": "1"}), one("z", {GPU: "1"})], offered(), CORE)
    assert {name: v.reason for name, v in judged.verdicts.items()} == {"x": CONFLICT, "y": "", "z": ""}
