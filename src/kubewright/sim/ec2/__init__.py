"""The one fake EC2: the production provider's page of calls, answered in memory, with what makes EC2 hard."""

from kubewright.sim.ec2.fake import FakeEc2
from kubewright.sim.ec2.faults import Faults

__all__ = ["FakeEc2", "Faults"]
