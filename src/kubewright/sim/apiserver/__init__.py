"""An API server in memory, with two doors: direct calls for the sandbox on virtual time, HTTP for kubectl.

`store.Store` holds objects as the wire does and has the server's semantics; `direct.DirectClient` is `KubeClient` over it,
`http.serve` the same over HTTP. What it says is compared with kube-apiserver 1.36.3 by tests/api (one contract, three doors) and
tests/e2e/test_same_answers.py (raw answers, word for word).

Refused, and never pretended: server-side apply (415), protobuf bodies, which `kubectl create KIND` sends (415, with the command
that does it in JSON), LimitRange and ResourceQuota (not served, since nothing would enforce them), logs, exec and port-forward
(404: no container runs), conversion between versions of a CRD, CRD schemas with keywords that `api.schema` has no code for (500).
There is no authentication, no RBAC and no webhook.
"""
