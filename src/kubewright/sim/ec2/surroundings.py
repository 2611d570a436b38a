"""What stands around an account's machines, for whoever looks for faults: routes, endpoints, the nodes' role, quotas."""

from msgspec.structs import replace

from kubewright.cloud.aws import api
from kubewright.cloud.aws.errors import AwsError
from kubewright.sim.ec2.account import OWNER, VPC, Account, matches, name_id

NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryPullOnly")


class Surroundings:
    """A healthy account at first; tests change its parts."""

    def __init__(self, account: Account) -> None:
        self._account = account
        out = api.Route(destination_cidr_block="0.0.0.0/0", nat_gateway_id="nat-0sandbox0000000000", state="active")
        main = api.RouteAssociation(main=True)
        self.tables = [
            api.RouteTable(route_table_id=name_id("rtb", VPC), vpc_id=VPC, associations=(main,), routes=(out,)),
        ]
        self.endpoints: list[api.VpcEndpoint] = []
        self.policies: dict[str, tuple[str, ...]] = {}
        """Role → managed policies; roles left out have what nodes need."""
        self.quotas = {"L-1216C47A": 1920.0, "L-34B43A08": 1280.0}
        self._guard(account)

    @staticmethod
    def _guard(account: Account) -> None:
        """The rules of EKS's own node group: out everywhere, in from each other and the control plane."""
        everywhere = (api.IpRange(cidr_ip="0.0.0.0/0"),)
        for name, group in account.groups.items():
            pair = (api.GroupPair(group_id=name),)
            account.groups[name] = replace(
                group,
                ip_permissions=(api.IpPermission(ip_protocol="-1", user_id_group_pairs=pair),),
                ip_permissions_egress=(api.IpPermission(ip_protocol="-1", ip_ranges=everywhere),),
            )

    def describe_route_tables(self, request: api.DescribeRouteTables) -> api.RouteTablesPage:
        found = [t for t in self.tables if matches(request.filters, {"vpc-id": t.vpc_id}, {}, "DescribeRouteTables")]
        return api.RouteTablesPage(route_tables=tuple(found))

    def describe_vpc_endpoints(self, request: api.DescribeVpcEndpoints) -> api.VpcEndpointsPage:
        found = [e for e in self.endpoints if matches(request.filters, {"vpc-id": e.vpc_id}, {}, "DescribeVpcEndpoints")]
        return api.VpcEndpointsPage(vpc_endpoints=tuple(found))

    def get_role(self, request: api.GetRole) -> api.RoleAnswer:
        self._check("GetRole", request.role_name)
        arn = f"arn:aws:iam::{OWNER}:role/{request.role_name}"
        return api.RoleAnswer(role=api.RoleInfo(role_name=request.role_name, arn=arn))

    def list_attached_role_policies(self, request: api.ListAttachedRolePolicies) -> api.AttachedPoliciesAnswer:
        self._check("ListAttachedRolePolicies", request.role_name)
        names = self.policies.get(request.role_name, NODE_POLICIES)
        found = tuple(api.AttachedPolicy(policy_name=n, policy_arn=f"arn:aws:iam::aws:policy/{n}") for n in names)
        return api.AttachedPoliciesAnswer(attached_policies=found)

    def get_service_quota(self, request: api.GetServiceQuota) -> api.ServiceQuotaAnswer:
        if request.service_code != "ec2" or request.quota_code not in self.quotas:
            raise AwsError("GetServiceQuota", "NoSuchResourceException", "The request failed because the quota does not exist.")
        quota = api.ServiceQuota(quota_code=request.quota_code, value=self.quotas[request.quota_code])
        return api.ServiceQuotaAnswer(quota=quota)

    @staticmethod
    def get_caller_identity() -> api.CallerIdentity:
        return api.CallerIdentity(account=OWNER, arn=f"arn:aws:sts::{OWNER}:assumed-role/admin/me")

    def _check(self, operation: str, role: str) -> None:
        if self._account.roles is not None and role not in self._account.roles:
            raise AwsError(operation, "NoSuchEntity", f"The role with name {role} cannot be found.", 404)
