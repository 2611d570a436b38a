"""Events of the pretend control plane, as `kubectl describe` shows them."""

from typing import Any

from kubewright.errors import Forbidden, NotFound
from kubewright.sim.apiserver.store import Store
from kubewright.sim.objects import Item, Key, key_of, stamp


class Events:
    """Writes core/v1 Events; one that repeats only counts up, as client-go's recorder does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._serial = 0
        self._last: dict[tuple[str, str, str, str], Key] = {}

    def tell(self, about: Item, kind: str, reason: str, message: str, component: str) -> None:
        """Tell about an object; `kind` is Normal or Warning. For cluster-scoped objects the event lives in `default`."""
        now = stamp(self._store.clock.now())
        uid = about["metadata"]["uid"]
        same = (uid, kind, reason, message)
        if (known := self._last.get(same)) is not None:
            old = self._old(known)
            if old is not None:
                counted = {"count": old.get("count", 1) + 1, "lastTimestamp": now}
                self._store.patch("v1", "Event", *known, counted)
                return
        namespace, name = key_of(about)
        self._serial += 1
        event: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{self._serial:016x}", "namespace": namespace or "default"},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": name,
                "uid": uid,
                **({"namespace": namespace} if namespace else {}),
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": component},
            "reportingComponent": component,
        }
        try:
            self._store.create(event)
        except (NotFound, Forbidden):
            return  # the namespace is gone or going, and with it everybody who could read this
        self._last[same] = key_of(event)

    def _old(self, key: Key) -> Item | None:
        events = self._store.kind("v1", "Event")
        return self._store.table(events).get(key)
