"""The HTTP door: the store as kubectl and every other Kubernetes client expects to meet it."""

from kubewright.sim.apiserver.http.server import Server, serve, write_kubeconfig

__all__ = ["Server", "serve", "write_kubeconfig"]
