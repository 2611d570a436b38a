"""A real Kubernetes control plane on loopback, for tests and benchmarks.

`binaries` builds its programs from Go modules once and keeps them, `crds` finds Karpenter's definitions in those modules,
`plane` starts and stops everything, `karpenter` runs the reference on it, `fixtures` hands it to pytest.
"""
