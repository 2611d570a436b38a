"""AWS error codes, and what each means for us: the one place that knows them.

Source: spec/aws 7.4.
"""

from collections.abc import Sequence

from kubewright.errors import CloudError, InstanceNotFound, InsufficientCapacity, LaunchFailed, Throttled


class AwsError(CloudError):
    """A call was answered with an error code.

    `status` is the HTTP status, 0 when there was no answer at all (the call may or may not have taken effect).
    """

    def __init__(self, operation: str, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.args = (operation, code, message, status)
        self.operation = operation
        self.code = code
        self.status = status

    def __str__(self) -> str:
        return f"{self.operation}: {self.code}: {self.message}"


NOT_FOUND = frozenset(
    {
        "InvalidCapacityReservationId.NotFound",
        "InvalidInstanceID.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "NoSuchEntity",
        "ParameterNotFound",
    }
)
UNFULFILLABLE = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        "InsufficientFreeAddressesInSubnet",
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    }
)
"""The offering is out for now; it is marked and others are tried."""
THROTTLING = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException", "EC2ThrottledException"}
)
NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
SUBNET_FULL = "InsufficientFreeAddressesInSubnet"
TEMPLATE_GONE = "InvalidLaunchTemplateName.NotFoundException"
TOKEN_REUSED = "IdempotentParameterMismatch"  # noqa: S105 - an error code
TEMPLATE_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"

# First match on the error text wins: (all of these substrings, condition reason, sentence).
_LAUNCH_REASONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("ServiceLinkedRoleCreationNotPermitted",), "SpotSLRCreationFailed", "The service-linked role for EC2 Spot is missing"),
    (("Not authorized for images",), "AMIAuthorizationFailure", "The AMI is not shared with this account"),
    (("UnauthorizedOperation",), "Unauthorized", "The controller's IAM role does not allow the call"),
    (("AccessDenied",), "Unauthorized", "The controller's IAM role does not allow the call"),
    (("AuthFailure",), "Unauthorized", "The controller's IAM role does not allow the call"),
    (
        ("InvalidParameter", "belong to different networks"),
        "SecurityGroupSubnetVPCMismatch",
        "Security groups and subnets are in different VPCs",
    ),
    (("iamInstanceProfile.name is invalid",), "InstanceProfileNameInvalid", "The instance profile does not exist (yet)"),
    (("InvalidLaunchTemplateId.NotFound",), "LaunchTemplateNotFound", "The launch template is gone"),
    (("User data is limited to",), "UserDataSizeLimitExceeded", "User data is larger than 16384 bytes"),
    (("InvalidAMIID.Malformed",), "InvalidAMIID", "The AMI id is malformed"),
    (("InvalidAMIID.NotFound",), "AMINotFound", "The AMI does not exist"),
    (("RequestLimitExceeded",), "RequestLimitExceeded", "EC2 wants fewer calls"),
    (("InternalError",), "InternalError", "EC2 failed internally"),
    (("not eligible for Free Tier",), "FreeTierIneligible", "The instance type is not in this account's Free Tier"),
    (("MaxFleetCountExceeded",), "FleetQuotaExceeded", "The account's fleet quota is used up"),
    (("PendingVerification",), "AccountPendingVerification", "AWS has not verified the account for this region yet"),
    (("MaxSpotInstanceCountExceeded",), "SpotQuotaExceeded", "The account's spot quota is used up"),
    (("VcpuLimitExceeded",), "VCPULimitExceeded", "The account's vCPU quota is used up"),
    (("InsufficientFreeAddressesInSubnet",), "InsufficientFreeAddressesInSubnet", "The subnet has no free address"),
)


def is_not_found(error: AwsError) -> bool:
    return error.code in NOT_FOUND


def is_throttling(error: AwsError) -> bool:
    return error.code in THROTTLING


def is_retryable(error: AwsError) -> bool:
    """Throttled, the server's fault, or no answer: the same call may be repeated: writes carry a token or are idempotent."""
    return error.code in THROTTLING or error.status == 0 or error.status >= 500


def is_unsure(error: AwsError) -> bool:
    """Nobody knows whether the call took effect."""
    return error.code not in THROTTLING and (error.status == 0 or error.status >= 500)


def launch_reason(code: str, message: str) -> tuple[str, str]:
    """The Launched condition's reason and message for a failed launch."""
    text = f"{code}: {message}"
    for parts, reason, sentence in _LAUNCH_REASONS:
        if all(part in text for part in parts):
            return reason, f"{sentence} ({text})"
    return "LaunchFailed", f"Instance launch failed ({text})"


def of_fleet(errors: Sequence[tuple[str, str]]) -> CloudError:
    """What a fleet answer without any instance means; `errors` are (code, message).

    Source: spec/aws 7.4: only if *every* error is about capacity is it a matter of capacity; no error at all is one too.
    """
    unique = sorted(set(errors))
    text = "; ".join(f"{code}: {message}" for code, message in unique)
    if all(code in UNFULFILLABLE or code == NO_SPOT_ROLE for code, _ in unique):
        return InsufficientCapacity(f"no capacity for any of the requested offerings{': ' + text if text else ''}")
    code, message = next((c, m) for c, m in unique if c not in UNFULFILLABLE and c != NO_SPOT_ROLE)
    return LaunchFailed(*launch_reason(code, message))


def of_call(error: AwsError) -> CloudError:
    """The house's error for a call outside the launch path."""
    if error.code == "InvalidInstanceID.NotFound":
        return InstanceNotFound(str(error))
    return Throttled(str(error)) if is_throttling(error) else error


def of_launch(error: AwsError) -> CloudError:
    """The house's error for a launch whose call itself was answered with an error."""
    if is_throttling(error):
        return Throttled(str(error))
    if error.code in UNFULFILLABLE:
        return InsufficientCapacity(str(error))
    return LaunchFailed(*launch_reason(error.code, error.message))
