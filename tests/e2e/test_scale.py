"""The benchmark of a large cluster, small: it measures what it says, and a cluster of this size needs little memory."""

from benchmarks import scale


def test_a_cluster_from_a_cold_start_serves_a_burst_in_bounded_memory() -> None:
    found = scale.measure(nodes=60, pods=1200, burst=60)
    assert found.bought > 0
    assert found.scrape_mib > 0.5, "a series for each pod and node"
    assert found.peak_mib < 300
