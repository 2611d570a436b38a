"""A control plane of real programs: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok.

    with Plane() as plane:
        plane.apply(*crds.core())
        plane.request("GET", "/api/v1/nodes")
        plane.kill("kube-apiserver")
        plane.restart("kube-apiserver")

It is ready in seconds and listens on 127.0.0.1 alone. Everything here blocks; call it from a thread where a loop is running.

Nodes: there are none at first. A Node object with the annotation `kwok.x-k8s.io/node: fake` (`NODE_ANNOTATION`) is given a
pretend kubelet: it becomes Ready at once and stays so, pods bound to it run, Jobs' pods complete and deleted pods go
(`stages.yaml` says how). Its maker writes capacity, allocatable, labels, taints and `status.nodeInfo`; nobody touches those.
Nodes without the annotation stay NotReady, as a machine whose kubelet never came up.

Nothing outlives the plane: programs run in process groups of their own and are ended by number when the `with` block is left,
however it is left; should this process be killed, the reaper ends them.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.plane import binaries, wire
from tests.plane.components import NODE_ANNOTATION, NODE_ANNOTATION_VALUE, PORTS, Component, Files, components
from tests.plane.credentials import Authority, write_kubeconfig
from tests.plane.processes import Process, ProgramFailed, Reaper, free_ports, run, wait_until
from tests.plane.waiting import eventually

__all__ = ["NODE_ANNOTATION", "NODE_ANNOTATION_VALUE", "STAGES", "Plane", "ProgramFailed"]

STAGES = Path(__file__).with_name("stages.yaml")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1"
READY_S = 60.0
"""How long a program may take to become ready before it counts as broken; it takes 2 s on two idle cores."""


class Plane:
    """One control plane in a temporary folder, for one use.

    `users` maps more user names to their groups; each gets a token, see `kubeconfig`. `flags` adds flags by program name.
    Without `kwok` nodes stay as their makers wrote them. `keep` leaves the folder, with its logs, behind.
    """

    def __init__(
        self,
        *,
        kwok: bool = True,
        users: Mapping[str, Sequence[str]] | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        stages: Path = STAGES,
        keep: bool = False,
    ) -> None:
        self._kwok = kwok
        self._users = {"admin": ["system:masters"], **(users or {})}
        self._flags = {name: tuple(more) for name, more in (flags or {}).items()}
        self._stages = stages
        self._keep = keep
        self._tokens = {user: secrets.token_hex(16) for user in self._users}
        self._components: dict[str, Component] = {}
        self._processes: dict[str, Process] = {}
        self._guests: list[Process] = []
        self.directory: Path
        """The plane's folder, while it runs; `logs/NAME.log` in it has what each program wrote."""
        self.url: str
        """Where the API server listens."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # -- the whole plane

    def start(self) -> None:
        """Build what has not been built, start every program and return when all are ready.

        Raises:
            BuildFailed: a program is not there and cannot be built; nothing has been started.
            ProgramFailed: one did not become ready; all have been ended again.
        """
        paths = {name: binaries.ensure(name) for name in self._program_names()}
        self.directory = Path(tempfile.mkdtemp(prefix="kubewright-plane-"))
        self._reaper = Reaper(self.directory)
        try:
            self._prepare(paths)
            for first in ("etcd", "kube-apiserver"):
                self.restart(first)
            others = [name for name in self._components if name not in ("etcd", "kube-apiserver")]
            for name in others:
                self._processes[name].start()
            for name in others:
                self.wait_ready(name)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every program, newest first, and remove the folder; a second call does nothing."""
        for guest in reversed(self._guests):
            guest.stop()
        for process in reversed(self._processes.values()):
            process.kill()  # its data goes with it, so there is nothing to wait for
        self._guests.clear()
        self._processes.clear()
        self._reaper.close()
        if not self._keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- one program

    @property
    def names(self) -> list[str]:
        """The plane's programs, in the order in which they are started."""
        return list(self._components)

    def process(self, name: str) -> Process:
        """The process of one of the plane's programs."""
        return self._processes[name]

    def halt(self, name: str) -> None:
        """End one program in good order (SIGTERM) and return when it is gone."""
        self._processes[name].stop()

    def kill(self, name: str) -> None:
        """End one program at once (SIGKILL) and return when it is gone; its data stays for `restart`."""
        self._processes[name].kill()

    def restart(self, name: str) -> None:
        """Start a program on its old port and data and return when it is ready; one that still runs is ended first."""
        self._processes[name].stop()
        self._processes[name].start()
        self.wait_ready(name)

    def wait_ready(self, name: str) -> None:
        """Return when the program says that it is ready. Raises ProgramFailed if it ends or takes too long."""
        component = self._components[name]
        wait_until(lambda: self._client.is_ready(component.ready), of=self._processes[name], timeout_s=READY_S)

    def spawn(self, name: str, argv: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Process:
        """Start another program that must not outlive the plane: an operator under test, Karpenter, a load.

        `env` is added to this process's environment, less what would point the program at another cluster. Its output is
        `logs/NAME.log`. `stop`, `kill` and `start` of the answer are free to use; leaving the plane stops it first.
        """
        process = self._new_process(name, [str(part) for part in argv], self._environment(env))
        self._guests.append(process)
        process.start()
        return process

    # -- talking to it

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of a user: `admin`, or one of `users`."""
        return self._write_kubeconfig(user, self._tokens[user])

    def service_account_kubeconfig(self, namespace: str, name: str, *, seconds: int = 36_000) -> Path:
        """The kubeconfig of a ServiceAccount that exists, with a token from the API server, as its pods would have it."""
        token = self.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds}},
        )
        return self._write_kubeconfig(f"system:serviceaccount:{namespace}:{name}", token["status"]["token"])

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> wire.Answer:
        """Ask the API server as admin: `path` from the root, `body` as JSON. A refusal is an answer like any other."""
        return self._client.request(method, path, body, content_type=content_type)

    def is_ready(self, url: str) -> bool:
        """Whether a program beside the plane answers 200 at `url`; no answer at all is a no."""
        return self._client.is_ready(url)

    def get(self, path: str) -> Any:
        """The object or list at `path`. Raises RequestRefused unless the server answers with it."""
        return self.request("GET", path).body_or_raise()

    def create(self, path: str, body: Any) -> Any:
        """The object that the server made of `body`. Raises RequestRefused if it refused."""
        return self.request("POST", path, body).body_or_raise()

    def delete(self, path: str) -> Any:
        """What the server says to the deletion of an object, or of a whole list. Raises RequestRefused if it refused."""
        return self.request("DELETE", path).body_or_raise()

    def apply(self, *files: Path) -> None:
        """Apply manifests from files and, where they hold CustomResourceDefinitions, wait until these are served."""
        self.kubectl("apply", "--server-side", "--force-conflicts", *(f"--filename={file}" for file in files))
        eventually(lambda: all(self._is_served(one) for one in self.get(f"{_DEFINITIONS}/customresourcedefinitions")["items"]))

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        """What kubectl, of the plane's own version and as admin, prints.

        Raises:
            ProgramFailed: it ended with an error; the message has what it said.
        """
        argv = [str(binaries.ensure("kubectl")), f"--kubeconfig={self.kubeconfig()}", *arguments]
        return run(argv, env=self._environment(), stdin=stdin, timeout_s=timeout_s)

    # -- inside

    def _is_served(self, definition: Any) -> bool:
        # "Established" comes early: for a moment longer the server answers 429, "storage is (re)initializing".
        spec = definition["spec"]
        return all(
            self.request("GET", f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}?limit=1").status == 200
            for version in spec["versions"]
            if version["served"]
        )

    def _program_names(self) -> Iterable[str]:
        return (name for name in (*(port for port in PORTS if port != "peer"),) if self._kwok or name != "kwok")

    def _prepare(self, paths: Mapping[str, Path]) -> None:
        (self.directory / "logs").mkdir()
        ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.url = f"https://127.0.0.1:{ports['kube-apiserver']}"
        self._authority = Authority(self.directory / "pki")
        certificate, key = self._authority.server("server")
        private, public = self._authority.key_pair("service-accounts")
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            "".join(f'{self._tokens[user]},{user},{user},"{",".join(groups)}"\n' for user, groups in self._users.items()),
            encoding="utf-8",
        )
        files = Files(
            authority=self._authority.certificate,
            certificate=certificate,
            key=key,
            account_private=private,
            account_public=public,
            tokens=tokens,
            admin=self.kubeconfig(),
            stages=self._stages,
            data=self.directory / "etcd",
        )
        self._client = wire.Client(self.url, authority=files.authority, token=self._tokens["admin"])
        unknown = sorted(set(self._flags) - set(paths))
        if unknown:
            raise ValueError(f"flags for {', '.join(unknown)}, which is no program of this plane: it has {', '.join(paths)}")
        for component in components(files, ports, self._flags):
            if component.name in paths:
                argv = [str(paths[component.name]), *component.flags]
                self._components[component.name] = component
                self._processes[component.name] = self._new_process(component.name, argv, self._environment())

    def _new_process(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Process:
        return Process(name, argv, log=self.directory / "logs" / f"{name}.log", reaper=self._reaper, env=env)

    def _environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        # A home of its own: kwok and kubectl read and write files there.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in {"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
            and name.lower() not in {"http_proxy", "https_proxy", "all_proxy"}
        }
        return {**kept, "HOME": str(self.directory), **(more or {})}

    def _write_kubeconfig(self, user: str, token: str) -> Path:
        path = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        return write_kubeconfig(path, server=self.url, authority=self._authority.certificate, user=user, token=token)
