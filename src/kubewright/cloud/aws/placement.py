"""The placement group that a NodeClass launches into. Source: spec/aws 2.4."""

from datetime import datetime, timedelta

from kubewright.api.aws import EC2NodeClass
from kubewright.cloud.aws import api, retry

STALE = timedelta(hours=24)


class PlacementGroups:
    """By NodeClass: what was resolved last."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], tuple[datetime, api.PlacementGroup]] = {}

    async def resolve(self, ec2: api.Ec2Api, node_class: EC2NodeClass, now: datetime) -> api.PlacementGroup | None:
        """None if the class selects none, or what it selects is not there. Raises AwsError: nobody knows."""
        selector, key = node_class.spec.placement_group_selector, _key(node_class)
        if selector is None:
            return None
        request = api.DescribePlacementGroups(
            group_ids=(selector.id,) if selector.id else (),
            group_names=(selector.name,) if selector.name else (),
            filters=(api.Filter(name="state", values=("available",)),),
        )
        found = (await retry.call(ec2.describe_placement_groups, request)).placement_groups
        if not found:
            self._found.pop(key, None)
            return None
        group = min(found, key=lambda g: g.group_id)
        self._found[key] = (now, group)
        return group

    def of(self, node_class: EC2NodeClass, now: datetime) -> api.PlacementGroup | None:
        """What `resolve` found for this generation of the class within a day."""
        if node_class.spec.placement_group_selector is None:
            return None
        found = self._found.get(_key(node_class))
        return found[1] if found is not None and found[0] + STALE > now else None


def _key(node_class: EC2NodeClass) -> tuple[str, int]:
    return node_class.metadata.uid, node_class.metadata.generation


def shown(node_class: EC2NodeClass) -> str:
    selector = node_class.spec.placement_group_selector
    return (selector.id or selector.name or "") if selector else ""
