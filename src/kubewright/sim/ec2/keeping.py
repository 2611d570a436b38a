"""The account of a fake EC2 in a file, so that it outlives the process: machines, fleets, launch templates, profiles."""

from pathlib import Path

import msgspec

from kubewright.cloud.aws import api
from kubewright.errors import ConfigError
from kubewright.sim.ec2.fake import FakeEc2
from kubewright.sim.ec2.instances import Machine

LaunchTemplates = dict[str, tuple[api.LaunchTemplate, api.LaunchTemplateData]]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the file."""

    machines: dict[str, Machine] = {}
    fleets: dict[str, tuple[api.CreateFleet, api.FleetAnswer]] = {}
    templates: LaunchTemplates = {}
    profiles: dict[str, api.InstanceProfileInfo] = {}


class Keeper:
    """Writes the account whole after every change; what is in the file is at any moment a state that the account was in."""

    def __init__(self, ec2: FakeEc2, file: Path) -> None:
        self._ec2 = ec2
        self._file = file

    def check(self) -> None:
        """Raises ConfigError if the file could not be written."""
        if not self._file.parent.is_dir():
            raise ConfigError(f"state of the fake EC2: there is no folder {self._file.parent}; make it, or name another file")

    def restore(self) -> None:
        """Put back what the file has; nothing if there is none. Timers start anew.

        Raises:
            ConfigError: the file is something else.
        """
        if not self._file.exists():
            return
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=Kept)
        except msgspec.DecodeError as error:
            text = f"state of the fake EC2: {self._file} is not such a file ({error}); remove it, or name another"
            raise ConfigError(text) from error
        account = self._ec2.account
        account.templates.update(kept.templates)
        account.profiles.update(kept.profiles)
        self._ec2.machines.resume(kept.machines, kept.fleets)

    def keep(self) -> None:
        """Write from now on."""
        others = self._ec2.on_write

        def written(operation: str, when: str) -> None:
            if others is not None:
                others(operation, when)
            if when == "after":
                self._write()

        self._ec2.on_write = written
        self._ec2.machines.on_running.append(lambda _: self._write())
        self._ec2.machines.on_terminated.append(lambda _: self._write())

    def _write(self) -> None:
        machines, account = self._ec2.machines, self._ec2.account
        kept = Kept(machines=machines.all, fleets=machines.fleets, templates=account.templates, profiles=account.profiles)
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(kept))
        fresh.replace(self._file)
