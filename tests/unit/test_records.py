"""Records: the same bytes for the same values, the same plan when solved again, and nothing secret inside."""

import gzip

import pytest
from msgspec.structs import replace

from kubewright.errors import ManifestError
from kubewright.records import decode, encode
from kubewright.settings import Settings
from kubewright.solver.select import select
from kubewright.solver.solve import solve
from tests.builders import ask, node_pool, pod
from tests.conformance.adapter import read
from tests.conformance.problems import problem


def test_a_record_solved_again_gives_the_same_bytes() -> None:
    for seed in range(30):
        asked = select(*read(problem(seed)[0])).problem
        data = encode(asked, solve(asked), Settings())
        again = decode(data)
        assert encode(again.problem, solve(again.problem), again.settings) == data


def test_pools_that_share_types_share_them_in_the_record() -> None:
    asked = ask([pod()], [node_pool("a"), node_pool("b")])
    record = decode(encode(asked, solve(asked), Settings()))
    assert len(record.catalogues) == 1
    assert record.problem.pools[0].instance_types is record.problem.pools[1].instance_types


def test_annotations_that_scheduling_does_not_read_are_left_out() -> None:
    one = pod()
    told = {"karpenter.sh/do-not-disrupt": "true", "vault/token": "hunter2"}
    asked = ask([replace(one, metadata=replace(one.metadata, annotations=told))])
    text = gzip.decompress(encode(asked, solve(asked), Settings()))
    assert b"hunter2" not in text
    assert b"do-not-disrupt" in text


def test_what_is_not_a_record_is_refused_by_name() -> None:
    with pytest.raises(ManifestError, match=r"x\.rec: not a record"):
        decode(b"hello", "x.rec")
