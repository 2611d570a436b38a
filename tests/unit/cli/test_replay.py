"""`kubewright sandbox --record` and `kubewright replay`."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubewright import records
from tests.unit.cli.shell import Shell

PLANTED = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default, annotations: {note: hunter2}}
spec:
  role: KarpenterNodeRole
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: sandbox}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: sandbox}}]
  userData: "#!/bin/sh\\nexport TOKEN=hunter2"
  tags: {secret: hunter2}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general, annotations: {vault: hunter2}}
spec:
  template:
    metadata: {annotations: {vault: hunter2}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.xlarge]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, annotations: {vault: hunter2}}
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: shop}
stringData: {password: hunter2}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: shop}
data: {password: hunter2}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast, annotations: {vault: hunter2}}
provisioner: ebs.csi.aws.com
volumeBindingMode: WaitForFirstConsumer
parameters: {key: hunter2}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk, annotations: {vault: hunter2}}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: fast
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, name: data, namespace: shop}
  csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1, volumeAttributes: {password: hunter2}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: shelf}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /hunter2}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop, annotations: {vault: hunter2}}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeName: disk, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {vault: hunter2}}
spec: {selector: {app: web}, ports: [{port: 80}], externalName: hunter2}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop, annotations: {vault: hunter2}}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop, annotations: {vault: hunter2}}
spec:
  selector: {matchLabels: {app: agent}}
  template: &template
    metadata: {labels: {app: agent}, annotations: {vault: hunter2}}
    spec:
      serviceAccountName: hunter2
      imagePullSecrets: [{name: hunter2}]
      initContainers:
      - {name: first, image: "registry.invalid/hunter2:1", env: [{name: TOKEN, value: hunter2}], command: [hunter2]}
      containers:
      - name: app
        image: "user:hunter2@registry.invalid/web:1"
        command: [run, --password=hunter2]
        args: [hunter2]
        workingDir: /hunter2
        env: [{name: PASSWORD, value: hunter2}, {name: OTHER, valueFrom: {secretKeyRef: {name: login, key: hunter2}}}]
        envFrom: [{secretRef: {name: hunter2}}]
        lifecycle: {preStop: {exec: {command: [hunter2]}}}
        livenessProbe: {httpGet: {path: /, port: 80, httpHeaders: [{name: Authorization, value: hunter2}]}}
        volumeMounts: [{name: login, mountPath: /hunter2}]
        resources: {requests: {cpu: 100m}}
      volumes:
      - {name: login, secret: {secretName: hunter2}}
      - {name: config, configMap: {name: hunter2}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop, annotations: {vault: hunter2}}
spec:
  serviceName: db
  replicas: 1
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}, annotations: {vault: hunter2, karpenter.sh/do-not-disrupt: "true"}}
    spec:
      containers: [{name: db, image: db, env: [{name: PASSWORD, value: hunter2}], resources: {requests: {cpu: 500m}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {vault: hunter2}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {vault: hunter2}}
    spec:
      containers: [{name: web, image: web, env: [{name: PASSWORD, value: hunter2}], resources: {requests: {cpu: 500m}}}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: login, secret: {secretName: hunter2}}]
---
apiVersion: v1
kind: Pod
metadata: {name: lost, namespace: shop, annotations: {vault: hunter2}}
spec:
  nodeSelector: {disk: huge}
  containers: [{name: app, image: app, env: [{name: PASSWORD, value: hunter2}]}]
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("recorded")
    (place / "cluster.yaml").write_text(PLANTED)
    command = ["sandbox", "-f", place / "cluster.yaml", "--for", "60s", "--record", place / "records"]
    done = subprocess.run([sys.executable, "-m", "kubewright", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr  # one pod stays lost
    return place / "records"


def test_nothing_planted_anywhere_is_in_a_record(recorded: Path) -> None:
    files = sorted(recorded.iterdir())
    assert len(files) > 2
    everything = b"".join(gzip.decompress(f.read_bytes()) for f in files)
    assert b"hunter2" not in everything
    for there in (b"shop/web", b"do-not-disrupt", b"ebs.csi.aws.com", b'"disk":"huge"', b"agent"):
        assert there in everything


def test_a_run_replays(kubewright: Shell, recorded: Path) -> None:
    done = kubewright("replay", recorded)
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert len(lines) == len(list(recorded.iterdir()))
    assert all(": identical (" in line for line in lines)
    told = json.loads(kubewright("replay", *sorted(recorded.iterdir())[:2], "-o", "json").out)
    assert [one["identical"] for one in told] == [True, True]


def test_a_plan_that_comes_out_otherwise_is_told_as_a_table(kubewright: Shell, recorded: Path, tmp_path: Path) -> None:
    first = next(r for r in map(records.load, sorted(recorded.iterdir())) if r.plan.claims)
    dearer = replace(first.plan, usd_per_hour=99.0, claims=())
    file = tmp_path / "changed.record"
    records.save(file, first.problem, dearer, first.settings)
    done = kubewright("replay", file)
    assert done.code == 1
    assert f"{file}: differs" in done.out
    assert "usd_per_hour" in done.out
    assert "not answered" in done.out
    (told,) = json.loads(kubewright("replay", file, "-o", "json").out)
    assert not told["identical"]
    assert {"about": "plan", "field": "machines", "then": "0", "now": str(len(first.plan.claims))} in told["differences"]


def test_what_is_no_record(kubewright: Shell, tmp_path: Path) -> None:
    assert kubewright("replay").code == 2
    assert "a directory without records" in kubewright("replay", tmp_path).err
    assert "cannot be read" in kubewright("replay", tmp_path / "none").err
    (tmp_path / "x.record").write_bytes(b"hello")
    done = kubewright("replay", tmp_path)
    assert done.code == 2
    assert "x.record: not a record of kubewright" in done.err
    done = kubewright("sandbox", "--record", tmp_path / "x.record")
    assert done.code == 2
