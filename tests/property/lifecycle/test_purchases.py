"""Laws of purchases in vain and of caps on spending."""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubewright.api.core import Pod, PodStatus
from kubewright.api.karpenter import NodeClaim, NodeClaimStatus, NodePool
from kubewright.api.meta import Condition, ObjectMeta, OwnerReference
from kubewright.lifecycle import bought, spending, unused
from kubewright.lifecycle.unused import FIRST_HOLD, LAST_HOLD, LAST_PAUSE, PAUSE_AT, VERDICT, Fate, Judged, Tally
from kubewright.settings import PurchaseSettings
from kubewright.solver.problem import PlannedClaim
from kubewright.solver.solve import solve
from tests.builders import NOW, ask, needs, node_pool, pod

PATIENCE = timedelta(minutes=5)


def of(app: str, name: str, node: str = "") -> Pod:
    one = pod(name, app=app)
    maker = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=app, uid=f"rs-{app}", controller=True)
    return replace(
        one,
        metadata=replace(one.metadata, owner_references=(maker,)),
        spec=replace(one.spec, node_name=node),
        status=one.status if not node else PodStatus(phase="Running"),
    )


def planned(pods: Sequence[Pod], usd: float = 1.0, pool: str = "default") -> PlannedClaim:
    return PlannedClaim("c", pool, {}, {}, {}, (), (), {}, (), tuple(sorted(p.key for p in pods)), usd)


def claim(pods: Sequence[Pod], created_s: float = 0, initialized_s: float | None = 60, why: str = "provisioned") -> NodeClaim:
    made = NOW + timedelta(seconds=created_s)
    told = () if initialized_s is None else (made + timedelta(seconds=initialized_s),)
    conditions = tuple(Condition(type="Initialized", status="True", last_transition_time=at) for at in told)
    meta = ObjectMeta(name=f"claim-{created_s}", creation_timestamp=made, annotations=bought.note(planned(pods), why))
    return NodeClaim(metadata=meta, status=NodeClaimStatus(conditions=conditions))


def judge(one: NodeClaim, pods: Sequence[Pod], at_s: float, *, is_expected: bool = True) -> Judged | None:
    by_key = {p.key: p for p in pods}
    now = NOW + timedelta(seconds=at_s)
    return unused.judge(one, None, (), by_key.get, lambda: pods, now, patience=PATIENCE, is_expected=is_expected)


# what became of a purchase


@given(st.sampled_from(("", "n1", "gone")), st.booleans(), st.floats(0, 2000), st.booleans())
def test_a_purchase_is_judged_by_where_its_pods_are_and_not_before_its_time(
    place: str, is_used: bool, at_s: float, is_expected: bool
) -> None:
    wanted = of("web", "a", "" if place == "gone" else place)
    one = claim([wanted])
    if is_used:
        one = replace(one, status=replace(one.status, last_pod_event_time=NOW))
    judged = judge(one, [] if place == "gone" else [wanted], at_s, is_expected=is_expected)
    assert judged is not None
    due = 60 + (30 if place == "" and not is_expected else 300)
    if is_used:
        assert judged.fate is Fate.USED
    elif at_s < due:
        assert judged.fate is Fate.WAITING
        assert judged.again is not None
        later = judge(one, [] if place == "gone" else [wanted], at_s + judged.again.total_seconds(), is_expected=is_expected)
        assert later is not None
        assert later.fate is not Fate.WAITING, "asked again when it is due, it is judged"
    else:
        assert judged.fate is {"": Fate.NEVER, "n1": Fate.ELSEWHERE, "gone": Fate.GONE}[place]


def test_what_was_not_bought_for_pods_that_wait_is_not_judged() -> None:
    wanted = of("web", "a")
    assert judge(claim([wanted], why="underutilized"), [wanted], 9999) is None
    assert judge(claim([]), [wanted], 9999) is None
    assert judge(replace(claim([wanted]), metadata=ObjectMeta(name="of-karpenter")), [wanted], 9999) is None


def test_a_machine_that_has_not_joined_or_goes_soon_teaches_nothing_of_pods_that_wait() -> None:
    wanted = of("web", "a")
    young = judge(claim([wanted], initialized_s=None), [wanted], 9999)
    assert young == Judged(Fate.WAITING)
    going = claim([wanted])
    going = replace(going, metadata=replace(going.metadata, deletion_timestamp=NOW))
    assert judge(going, [wanted], 70) == Judged(Fate.WAITING)
    moved = judge(going, [of("web", "a", "n1")], 70)
    assert moved is not None
    assert moved.fate is Fate.ELSEWHERE


@given(st.integers(0, 120), st.sampled_from(("web", "other")))
def test_pods_that_are_replaced_while_they_wait_are_judged_by_their_successors(age_s: int, app: str) -> None:
    gone = of("web", "a")
    told = bought.note(planned([gone]), "provisioned", {unused.workload(gone)})
    one = claim([gone])
    one = replace(one, metadata=replace(one.metadata, annotations=told))
    made = NOW + timedelta(seconds=1000 - age_s)
    successor = of(app, "b")
    successor = replace(successor, metadata=replace(successor.metadata, creation_timestamp=made))
    judged = judge(one, [successor], 1000)
    assert judged is not None
    assert (judged.fate is Fate.NEVER) == (app == "web" and age_s >= 30)
    assert judged.fate in (Fate.NEVER, Fate.GONE)


# what the pool remembers

events = st.lists(
    st.tuples(st.integers(1, 4000), st.sampled_from((Fate.USED, Fate.NEVER, Fate.ELSEWHERE, Fate.GONE)), st.sampled_from("abc")),
    max_size=30,
)


def lived(history: Sequence[tuple[int, Fate, str]]) -> list[Tally]:
    """The tally after each purchase of a history: (seconds since the one before, what became of it, for whom)."""
    told, at_s, found = Tally(), 0.0, []
    for pause_s, fate, app in history:
        at_s += pause_s
        wanted = of(app, app)
        one = claim([wanted], created_s=at_s)
        judged = Judged(fate, waiting=(wanted,) if fate is Fate.NEVER else ())
        at_s += 360
        now = NOW + timedelta(seconds=at_s)
        here = (wanted,) if fate is Fate.USED else ()
        told = unused.after(told, one, judged, here, now)
        assert unused.after(told, one, judged, here, now + timedelta(seconds=50)) == told, "counting twice changes nothing"
        pool = unused.with_tally(node_pool(), told)
        assert unused.tally(pool) == told, "it survives a restart"
        assert len(pool.metadata.annotations.get(unused.TALLY, "")) < 4000
        found.append(told)
    return found


@given(events)
def test_a_used_machine_ends_what_was_counted_and_normal_fleets_are_never_paused(history: list[tuple[int, Fate, str]]) -> None:
    row = 0
    for (_, fate, _), told in zip(history, lived(history), strict=True):
        row = 0 if fate is Fate.USED else row + {Fate.NEVER: 2, Fate.ELSEWHERE: 1, Fate.GONE: 0}[fate]
        assert told.points == row
        if row < PAUSE_AT:
            assert told.until is None
    if all(fate is Fate.USED for _, fate, _ in history):
        assert all(told == Tally() for told in lived(history))


@given(events)
def test_pauses_and_holds_grow_and_have_an_end(history: list[tuple[int, Fate, str]]) -> None:
    before = Tally()
    for told in lived(history):
        if told.until is not None and told.at is not None:
            assert told.until - told.at <= LAST_PAUSE
        for key, held in told.held.items():
            assert FIRST_HOLD <= held.until - held.at <= LAST_HOLD
            last = before.held.get(key)
            if last is not None and held.times > last.times:
                assert held.until - held.at >= last.until - last.at
        before = told


@given(st.integers(1, 60))
def test_a_workload_that_no_node_suits_is_bought_for_ever_more_seldom(days: int) -> None:
    """Bought for as soon as it may be, it costs a bounded number of machines a day."""
    told, now, purchases = Tally(), NOW, 0
    end = NOW + timedelta(days=days)
    wanted = of("web", "a")
    while now < end:
        held = told.held.get("rs-web")
        if held is not None:
            now = max(now, held.until)
        if told.until is not None:
            now = max(now, told.until)
        one = claim([wanted], created_s=(now - NOW).total_seconds())
        purchases += 1
        now += timedelta(seconds=400)
        told = unused.after(told, one, Judged(Fate.NEVER, waiting=(wanted,)), (), now)
    assert purchases <= 6 + 7 * days


def test_machines_of_one_round_count_once() -> None:
    told = Tally()
    wanted = of("web", "a")
    for i in range(50):
        judged, now = Judged(Fate.NEVER, waiting=(wanted,)), NOW + timedelta(seconds=600 + i)
        told = unused.after(told, claim([wanted], created_s=i), judged, (), now)
    assert told.points == 2
    assert told.held["rs-web"].times == 1


def test_a_pod_that_comes_late_clears_the_node_that_was_blamed() -> None:
    wanted = of("web", "a")
    one = claim([wanted])
    blamed = unused.after(Tally(), one, Judged(Fate.NEVER, waiting=(wanted,)), (), NOW + timedelta(seconds=600))
    one = unused.with_verdict(one, Fate.NEVER)
    assert one.metadata.annotations[VERDICT] == "never"
    assert unused.after(blamed, one, Judged(Fate.USED), (wanted,), NOW + timedelta(seconds=900)) == Tally()
    assert VERDICT not in unused.with_verdict(one, Fate.USED).metadata.annotations


def test_a_note_that_cannot_be_read_is_no_note() -> None:
    pool = node_pool()
    for text in ("", "{", "[]", '{"points": "x"}'):
        broken = replace(pool, metadata=replace(pool.metadata, annotations={unused.TALLY: text}))
        assert unused.tally(broken) == Tally()


# what it means for a pass


def remembered(name: str, told: Tally) -> NodePool:
    return unused.with_tally(node_pool(name, weight=10 if name == "a" else 1), told)


def test_a_held_workload_is_bought_for_in_another_pool_and_others_are_not_touched() -> None:
    told = unused.after(Tally(), claim([of("bad", "x")]), Judged(Fate.NEVER, waiting=(of("bad", "x"),)), (), NOW)
    problem = ask([of("bad", "x"), of("good", "y")], [remembered("a", told), node_pool("b", weight=1)])
    eased, why = unused.relieved(problem)
    assert list(why) == ["default/x"]
    placed = {key: c.node_pool for c in solve(eased).claims for key in c.pods}
    assert placed["default/x"] == "b"
    (good,) = solve(unused.relieved(replace(problem, pods=(of("good", "y"),)))[0]).claims
    assert good.node_pool == "a"
    over = replace(problem, now=NOW + FIRST_HOLD)
    assert unused.relieved(over) == (over, {})
    alone, why = unused.relieved(ask([of("bad", "x")], [remembered("a", told)]))
    assert list(solve(alone).unplaced) == ["default/x"]
    assert "bought for there until 2026-01-01T00:10:00Z" in why["default/x"]


def test_a_pod_with_its_own_terms_keeps_them_all() -> None:
    told = unused.after(Tally(), claim([of("bad", "x")]), Judged(Fate.NEVER, waiting=(of("bad", "x"),)), (), NOW)
    eased, _ = unused.relieved(ask([of("bad", "x")], [remembered("a", told), node_pool("b", requirements=(needs("zone", "z"),))]))
    (one,) = eased.pods
    assert one.spec.affinity is not None
    assert one.spec.affinity.node_affinity is not None
    assert one.spec.affinity.node_affinity.required is not None
    ((expression,),) = (t.match_expressions for t in one.spec.affinity.node_affinity.required.node_selector_terms)
    assert (expression.key, expression.operator, expression.values) == ("karpenter.sh/nodepool", "NotIn", ("a",))


def test_a_paused_pool_buys_nothing_and_says_until_when() -> None:
    told = Tally(points=4, at=NOW, until=NOW + timedelta(minutes=5))
    eased, _ = unused.relieved(ask([pod("p")], [remembered("a", told)]))
    ((refusal, *_),) = solve(eased).unplaced.values()
    assert refusal.found == "paused until 2026-01-01T00:05:00Z: the nodes it bought last were not used"


# caps


@given(
    st.lists(st.floats(0.01, 5), max_size=20),
    st.floats(0, 50),
    st.integers(0, 20),
    st.floats(0, 60),
    st.integers(0, 30),
)
@settings(max_examples=200)
def test_caps_hold_lose_nothing_and_are_off_unless_set(
    prices: list[float], running: float, lately: int, cap: float, per_hour: int
) -> None:
    wanted = [replace(planned([]), name=str(i), usd_per_hour=usd) for i, usd in enumerate(prices)]
    found = spending.admit(wanted, running, lately, PurchaseSettings(spend_cap_usd_per_hour=cap, per_hour=per_hour))
    assert sorted(c.name for c in (*found.claims, *(c for c, _ in found.refused))) == sorted(c.name for c in wanted)
    assert [c.name for c in found.claims] == [c.name for c in wanted if c in found.claims], "in order"
    if cap and found.claims:
        assert running + sum(c.usd_per_hour for c in found.claims) <= cap + 1e-9
    if per_hour and found.claims:
        assert lately + len(found.claims) <= per_hour
    if not cap and not per_hour:
        assert len(found.claims) == len(wanted)
    for _, why in found.refused:
        assert "--spend-cap" in why or "--purchases-per-hour" in why


@given(st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 50)), max_size=40))
def test_purchases_are_counted_over_the_last_hour(history: list[tuple[int, int]]) -> None:
    text, at_s, bought_at = "", 0, []
    for pause_s, count in history:
        at_s += pause_s
        now = NOW + timedelta(seconds=at_s)
        text = spending.noted(spending.lately(text, now), count, now)
        bought_at.append((at_s, count))
        counted = spending.total([spending.lately(text, now)])
        surely = sum(n for at, n in bought_at if at_s - at < 3600 - 60)
        atmost = sum(n for at, n in bought_at if at_s - at <= 3600)
        assert surely <= counted <= atmost
        assert len(text) < 1500
    assert spending.lately("nonsense", NOW) == {}
