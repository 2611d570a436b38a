"""Subnets and security groups that a NodeClass selects. Source: spec/aws 2."""

from collections.abc import Iterable, Mapping, Sequence

from kubewright.api.aws import SecurityGroupSelectorTerm, SubnetSelectorTerm
from kubewright.cloud.aws import api, retry


def tag_filters(tags: Mapping[str, str]) -> tuple[api.Filter, ...]:
    """ANDed; the value `*` asks only for the key."""
    return tuple(
        api.Filter(name="tag-key", values=(key,)) if value == "*" else api.Filter(name=f"tag:{key}", values=(value,))
        for key, value in sorted(tags.items())
    )


def queries(ids: Iterable[str], id_filter: str, others: Iterable[tuple[api.Filter, ...]]) -> list[tuple[api.Filter, ...]]:
    """One query for all ids, one for each other term."""
    listed = tuple(sorted(set(ids)))
    return [*([(api.Filter(name=id_filter, values=listed),)] if listed else []), *others]


async def subnets(ec2: api.Ec2Api, terms: Sequence[SubnetSelectorTerm]) -> tuple[api.Subnet, ...]:
    """Those with most free addresses first."""
    found: dict[str, api.Subnet] = {}
    others = [tag_filters(t.tags) for t in terms if not t.id]
    for filters in queries((t.id for t in terms if t.id), "subnet-id", others):
        async for page in retry.pages(ec2.describe_subnets, api.DescribeSubnets(filters=filters, max_results=500)):
            found.update((s.subnet_id, s) for s in page.subnets)
    return tuple(sorted(found.values(), key=lambda s: (-s.available_ip_address_count, s.subnet_id)))


async def security_groups(ec2: api.Ec2Api, terms: Sequence[SecurityGroupSelectorTerm]) -> tuple[api.SecurityGroup, ...]:
    """By id."""
    found: dict[str, api.SecurityGroup] = {}
    others = [(api.Filter(name="group-name", values=(t.name,)),) if t.name else tag_filters(t.tags) for t in terms if not t.id]
    for filters in queries((t.id for t in terms if t.id), "group-id", others):
        request = api.DescribeSecurityGroups(filters=filters, max_results=500)
        async for page in retry.pages(ec2.describe_security_groups, request):
            found.update((g.group_id, g) for g in page.security_groups)
    return tuple(found[i] for i in sorted(found))
