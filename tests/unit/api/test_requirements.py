"""Which sets of requirements no machine can meet, and what runtime validation says of NodePools."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.api import labels, validation
from kubewright.api.contradictions import contradictions
from kubewright.api.karpenter import NodePool

VALUES = ["0", "1", "2", "3", "4", "5", "6", "x", "y"]
KEY = "example.com/k"


def requirement(operator: str, *values: str) -> dict[str, object]:
    return {"key": KEY, "operator": operator} | ({"values": list(values)} if values else {})


ONE = st.one_of(
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(lambda v: requirement("In", *v)),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(lambda v: requirement("NotIn", *v)),
    st.builds(requirement, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(lambda op, n: requirement(op, str(n)), st.sampled_from(["Gt", "Gte", "Lt", "Lte"]), st.integers(0, 6)),
)


def met(written: dict[str, object], value: str | None) -> bool:
    """One requirement, asked of one machine: the plain meaning."""
    operator, values = str(written["operator"]), written.get("values", [])
    assert isinstance(values, list)
    if operator in ("NotIn", "DoesNotExist"):
        return value is None or (operator == "NotIn" and value not in values)
    if value is None:
        return False
    if operator == "In":
        return value in values
    if operator == "Exists":
        return True
    bound = int(values[0])
    checks = {"Gt": lambda n: n > bound, "Gte": lambda n: n >= bound, "Lt": lambda n: n < bound, "Lte": lambda n: n <= bound}
    return value.isdigit() and checks[operator](int(value))


@given(st.lists(ONE, max_size=4))
def test_a_contradiction_is_told_exactly_when_no_machine_would_do(written: list[dict[str, object]]) -> None:
    # every value that is named, its neighbours, a word nobody names, and no label at all stand for all machines there could be
    machines: list[str | None] = [None, "nobody-named-this", *VALUES, *(str(n) for n in range(12))]
    possible = any(all(met(r, machine) for r in written) for machine in machines)
    assert (list(contradictions(written, {})) == []) == possible


@pytest.mark.parametrize(
    ("written", "node_labels", "told"),
    [
        ([requirement("In", "b")], {KEY: "a"}, f"the label {KEY}: a and In [b] leave no value for {KEY}"),
        ([requirement("Lt", "0")], {}, f"Lt [0] leaves no value for {KEY}"),
        ([requirement("DoesNotExist")], {KEY: "a"}, f"the label {KEY}: a and DoesNotExist leave no value for {KEY}"),
    ],
)
def test_the_reason_names_all_that_took_part(written: list[dict[str, object]], node_labels: dict[str, str], told: str) -> None:
    assert [why for _, why in contradictions(written, node_labels)] == [told]


def test_an_old_name_and_a_new_name_of_a_label_are_one_label() -> None:
    both = [
        {"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]},
    ]
    assert len(list(contradictions(both, {}))) == 1


def pool(spec: dict[str, object], node_labels: dict[str, str] | None = None) -> NodePool:
    return msgspec.convert({"spec": {"template": {"metadata": {"labels": node_labels or {}}, "spec": spec}}}, NodePool)


@pytest.mark.parametrize(
    ("spec", "node_labels", "told"),
    [
        ({}, {"karpenter.sh/nodepool": "x"}, 'invalid key name "karpenter.sh/nodepool" in labels, restricted'),
        ({}, {"a": "b" * 64}, f"invalid value: {'b' * 64} for label[a], must be no more than 63 bytes"),
        ({"taints": [{"key": "a", "effect": "Bad"}]}, {}, 'invalid value: "Bad" in taints'),
        (
            {"taints": [{"key": "a", "effect": "NoSchedule"}], "startupTaints": [{"key": "a", "effect": "NoSchedule"}]},
            {},
            "duplicate taint Key/Effect pair a=NoSchedule",
        ),
        (
            {"requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spotty"]}]},
            {},
            (
                "invalid value: no valid values found in [spotty] for karpenter.sh/capacity-type, expected one of: "
                "[on-demand reserved spot], got: [spotty] in requirements, restricted"
            ),
        ),
        (
            {"requirements": [{"key": "a", "operator": "Gt", "values": ["x"]}]},
            {},
            "invalid value: key a with operator Gt must have a single positive integer value in requirements, restricted",
        ),
        (
            {"requirements": [{"key": "karpenter.sh/nodepool", "operator": "Exists"}]},
            {},
            'invalid key: "karpenter.sh/nodepool" in requirements, restricted',
        ),
    ],
)
def test_runtime_validation_says_what_the_reference_says(spec: dict[str, object], node_labels: dict[str, str], told: str) -> None:
    assert validation.runtime_problems(pool(spec, node_labels)) == (told,)


def test_a_mixture_of_good_and_bad_values_passes() -> None:
    mixed = {"requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "spotty"]}]}
    assert validation.runtime_problems(pool(mixed)) == ()


def test_only_the_provider_makes_its_own_labels_well_known() -> None:
    key = "karpenter.k8s.aws/instance-family"
    assert validation.requirement_problems(key, "Exists", ()) == []
    assert validation.requirement_problems(key, "Exists", (), None, validation.CORE) == []
    other = "karpenter.k8s.aws/other"
    assert validation.requirement_problems(other, "Exists", ()) != []
    assert validation.requirement_problems("karpenter.sh/other", "Exists", (), None, validation.CORE) != []


@pytest.mark.parametrize(
    ("key", "restricted"),
    [
        ("kubernetes.io/hostname", True),
        ("karpenter.sh/other", True),
        ("sub.karpenter.sh/x", True),
        ("notkarpenter.sh/x", False),
        ("karpenter.sh/nodepool", False),
        ("kubernetes.io/x", False),
        ("plain", False),
    ],
)
def test_restricted_labels(key: str, restricted: bool) -> None:
    assert labels.is_restricted(key) == restricted
