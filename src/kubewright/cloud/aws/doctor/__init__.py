"""What is wrong with an AWS set-up, and how to mend it: every finding names the object. Nothing is changed by looking."""

from kubewright.cloud.aws.doctor.examination import examine
from kubewright.cloud.aws.doctor.findings import Finding, Verdict

__all__ = ["Finding", "Verdict", "examine"]
