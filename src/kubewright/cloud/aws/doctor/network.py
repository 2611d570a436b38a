"""Whether a node in the class's subnets reaches what it must: the API server, the registry, S3, and back."""

import json
from collections.abc import Iterable, Sequence

from kubewright.api.aws import EC2NodeClass
from kubewright.cloud.aws import api
from kubewright.cloud.aws.doctor.findings import Finding, look, not_seen, ok, problem
from kubewright.cloud.aws.errors import AwsError

FEW = 16
"""Free addresses of a subnet; a node of ten pods takes about so many."""
ENDPOINTS = ("ec2", "ecr.api", "ecr.dkr", "s3", "sts", "eks")
"""What a node asks for, where nothing leads out of its subnet. Source: the EKS guide on private clusters."""
_EVERYWHERE = ("0.0.0.0/0", "::/0")


async def of_class(ec2: api.DoctorApi, node_class: EC2NodeClass, region: str) -> list[Finding]:
    ids = tuple(s.id for s in node_class.status.subnets)
    if not ids:
        return []
    filters = (api.Filter(name="subnet-id", values=ids[:200]),)
    answer = await look(ec2.describe_subnets, api.DescribeSubnets(filters=filters))
    if isinstance(answer, AwsError):
        return [not_seen(f"subnets of EC2NodeClass {node_class.name}", answer, "ec2:DescribeSubnets")]
    subnets = sorted(answer.subnets, key=lambda s: s.subnet_id)
    found = _addresses(subnets)
    groups = await _groups(ec2, node_class, subnets)
    return [*found, *groups, *await _ways_out(ec2, node_class, subnets, region)]


def _addresses(subnets: Sequence[api.Subnet]) -> list[Finding]:
    found = []
    for s in subnets:
        about, left = f"subnet {s.subnet_id} ({s.availability_zone})", s.available_ip_address_count
        if left < FEW:
            mend = "add a subnet to the class in this zone, or a secondary range, or use prefix delegation"
            found.append(problem(about, f"{left} free addresses: nodes or pods there soon get none", mend))
        else:
            found.append(ok(about, f"{left} free addresses"))
    zones = {s.availability_zone for s in subnets}
    if len(zones) == 1:
        mend = "select subnets of more zones, for capacity and for the day the zone fails"
        found.append(problem(f"zone {min(zones)}", "all subnets of the class are in this one", mend))
    return found


async def _groups(ec2: api.DoctorApi, node_class: EC2NodeClass, subnets: Sequence[api.Subnet]) -> list[Finding]:
    ids = tuple(g.id for g in node_class.status.security_groups)
    filters = (api.Filter(name="group-id", values=ids[:200]),)
    answer = await look(ec2.describe_security_groups, api.DescribeSecurityGroups(filters=filters))
    if isinstance(answer, AwsError):
        return [not_seen(f"security groups of EC2NodeClass {node_class.name}", answer, "ec2:DescribeSecurityGroups")]
    found: list[Finding] = []
    vpcs = {s.vpc_id for s in subnets}
    groups = sorted(answer.security_groups, key=lambda g: g.group_id)
    for g in groups:
        if g.vpc_id not in vpcs:
            mend = "select groups and subnets of one VPC"
            found.append(problem(f"security group {g.group_id}", f"it is in {g.vpc_id}, the subnets are in {min(vpcs)}", mend))
    name = ", ".join(g.group_id for g in groups)
    about = f"security group {name}"
    if not any(_lets(g.ip_permissions_egress, 443) for g in groups):
        mend = "allow egress on TCP 443 to the API server, the registry and S3"
        found.append(problem(about, "no rule lets nodes out on port 443", mend))
    ours = {g.group_id for g in groups}
    inward = [p for g in groups for p in g.ip_permissions]
    among = [p for p in inward if p.ip_ranges or ours & {pair.group_id for pair in p.user_id_group_pairs}]
    if not _lets(among, 10250) and not any(p.user_id_group_pairs for p in inward):
        mend = "allow ingress on TCP 10250 from the cluster's security group, and all traffic among the nodes"
        found.append(problem(about, "no rule lets the control plane in to the kubelet on port 10250", mend))
    if not _lets(among, 53, udp=True):
        mend = "allow all traffic from the nodes' own security group"
        found.append(problem(about, "no rule lets nodes ask each other for DNS on port 53", mend))
    return found or [ok(about, "lets nodes out, and the control plane and each other in")]


def _lets(rules: Iterable[api.IpPermission], port: int, *, udp: bool = False) -> bool:
    wanted = "udp" if udp else "tcp"
    for rule in rules:
        if rule.ip_protocol not in ("-1", wanted):
            continue
        if rule.from_port is None or rule.ip_protocol == "-1" or rule.from_port <= port <= (rule.to_port or rule.from_port):
            return True
    return False


async def _ways_out(ec2: api.DoctorApi, node_class: EC2NodeClass, subnets: Sequence[api.Subnet], region: str) -> list[Finding]:
    vpcs = tuple(sorted({s.vpc_id for s in subnets}))
    of_vpc = (api.Filter(name="vpc-id", values=vpcs),)
    tables = await look(ec2.describe_route_tables, api.DescribeRouteTables(filters=of_vpc))
    if isinstance(tables, AwsError):
        return [not_seen(f"routes of EC2NodeClass {node_class.name}", tables, "ec2:DescribeRouteTables")]
    endpoints = await look(ec2.describe_vpc_endpoints, api.DescribeVpcEndpoints(filters=of_vpc))
    if isinstance(endpoints, AwsError):
        return [not_seen(f"VPC endpoints of EC2NodeClass {node_class.name}", endpoints, "ec2:DescribeVpcEndpoints")]
    found: list[Finding] = []
    for s in subnets:
        found += _way_out(s, tables.route_tables, endpoints.vpc_endpoints, node_class, region)
    return found + [f for e in endpoints.vpc_endpoints for f in _s3_policy(e, region)]


def _way_out(
    s: api.Subnet,
    tables: Sequence[api.RouteTable],
    endpoints: Sequence[api.VpcEndpoint],
    node_class: EC2NodeClass,
    region: str,
) -> list[Finding]:
    about = f"subnet {s.subnet_id} ({s.availability_zone})"
    own = [t for t in tables if any(a.subnet_id == s.subnet_id for a in t.associations)]
    main = [t for t in tables if t.vpc_id == s.vpc_id and any(a.main for a in t.associations)]
    table = next(iter(own or main), None)
    if table is None:
        return [problem(about, "no route table applies to it", "associate one that leads to a NAT gateway")]
    default = next((r for r in table.routes if r.destination_cidr_block in _EVERYWHERE), None)
    if default is not None and default.state == "blackhole":
        mend = f"correct the default route in {table.route_table_id}: what it leads to is gone"
        return [problem(about, f"the default route of {table.route_table_id} leads nowhere", mend)]
    if default is not None and default.gateway_id.startswith("igw-"):
        if s.map_public_ip_on_launch or node_class.spec.associate_public_ip_address:
            return [ok(about, "leads out through an internet gateway, with public addresses")]
        mend = "route it through a NAT gateway, or set spec.associatePublicIPAddress: true"
        return [problem(about, f"it leads out through {default.gateway_id}, but nodes get no public address", mend)]
    if default is not None:
        return [ok(about, f"leads out by {table.route_table_id}")]
    reached = {e.service_name.removeprefix(f"com.amazonaws.{region}.") for e in endpoints if _serves(e, s, table)}
    missing = [name for name in ENDPOINTS if name not in reached]
    if missing:
        mend = f"add a route to a NAT gateway to {table.route_table_id}, or VPC endpoints for {', '.join(missing)}"
        text = f"nothing leads out of it, and there is no VPC endpoint for {', '.join(missing)}"
        return [problem(about, text, mend)]
    return [ok(about, "reaches what nodes need through VPC endpoints")]


def _serves(e: api.VpcEndpoint, s: api.Subnet, table: api.RouteTable) -> bool:
    """Interface endpoints serve their whole VPC, gateways the route tables that they are in."""
    if e.state.lower() != "available" or e.vpc_id != s.vpc_id:
        return False
    return e.vpc_endpoint_type != "Gateway" or table.route_table_id in e.route_table_ids


def _s3_policy(e: api.VpcEndpoint, region: str) -> list[Finding]:
    """Image layers come from a bucket of the registry's own, which the endpoint's policy must let through."""
    if not e.service_name.endswith(".s3") or not e.policy_document:
        return []
    about = f"VPC endpoint {e.vpc_endpoint_id}"
    bucket = f"arn:aws:s3:::prod-{region}-starport-layer-bucket/*"
    try:
        statements = json.loads(e.policy_document).get("Statement", [])
    except ValueError:
        return [problem(about, "its policy is not JSON", "write a policy")]
    for statement in statements if isinstance(statements, list) else [statements]:
        actions, resources = _listed(statement.get("Action")), _listed(statement.get("Resource"))
        allows = statement.get("Effect") == "Allow" and any(a in ("*", "s3:*", "s3:GetObject", "s3:Get*") for a in actions)
        if allows and any(r in ("*", bucket, "arn:aws:s3:::*") or r.startswith(bucket.removesuffix("/*")) for r in resources):
            return [ok(about, "lets image layers through")]
    mend = f"allow s3:GetObject on {bucket} in its policy"
    return [problem(about, "its policy keeps image layers from nodes: pods stay ContainerCreating or ErrImagePull", mend)]


def _listed(value: object) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else [str(value)] if value else []
