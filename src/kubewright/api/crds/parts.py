"""The words that our CRD schemas are written in, and the pieces that several kinds share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubewright.api.rules import aws, core
from kubewright.api.rules.rule import Rule

Node = dict[str, Any]
"""A structural schema node; `x-kubernetes-validations` holds `Rule` values until `crds.wire` turns them into text."""

QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
)
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
QUANTITY = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
DURATION = "^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = "^(([0-9]+(s|m|h))+|Never)$"
CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
REASON_OR_NONE = r"^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"

OPERATORS = ("Gte", "Lte", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def with_rules(node: Node, rules: Iterable[Rule]) -> Node:
    return node | {"x-kubernetes-validations": list(rules)}


def string(description: str, **more: Any) -> Node:
    return {"type": "string", "description": description} | more


def choice(description: str, values: Sequence[str], **more: Any) -> Node:
    return string(description, enum=list(values), **more)


def boolean(description: str) -> Node:
    return {"type": "boolean", "description": description}


def integer(description: str, width: str = "", low: int | None = None, high: int | None = None, **more: Any) -> Node:
    node: Node = {"type": "integer", "description": description}
    if width:
        node["format"] = width
    if low is not None:
        node["minimum"] = low
    if high is not None:
        node["maximum"] = high
    return node | more


def moment(description: str) -> Node:
    return string(description, format="date-time")


def array(description: str, of: Node, **more: Any) -> Node:
    return {"type": "array", "description": description, "items": of} | more


def atomic(description: str, of: Node, **more: Any) -> Node:
    return array(description, of, **{"x-kubernetes-list-type": "atomic"}, **more)


def record(description: str, fields: Mapping[str, Node], required: Sequence[str] = (), **more: Any) -> Node:
    node: Node = {"type": "object", "description": description, "properties": dict(fields)}
    if required:
        node["required"] = sorted(required)
    return node | more


def string_map(description: str, value: Node | None = None, **more: Any) -> Node:
    return {"type": "object", "description": description, "additionalProperties": value or {"type": "string"}} | more


def quantity_map(description: str) -> Node:
    quantity = {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY, "x-kubernetes-int-or-string": True}
    return string_map(description, quantity)


def node_class_ref(*rules: Rule) -> Node:
    def part(name: str, description: str, **more: Any) -> Node:
        return with_rules(string(description, **more), [core.not_empty(name, "{} may not be empty")])

    node = record(
        "The NodeClass that says how machines are bought.",
        {
            "group": part("group", "API group of the NodeClass.", pattern="^[^/]*$"),
            "kind": part("kind", "Kind of the NodeClass."),
            "name": part("name", "Name of the NodeClass."),
        },
        ("group", "kind", "name"),
    )
    return with_rules(node, rules) if rules else node


def requirements(key_rules: Iterable[Rule], rules: Iterable[Rule], *, min_values: bool = True) -> Node:
    fields: dict[str, Node] = {
        "key": with_rules(string("Label that is asked for.", maxLength=316, pattern=QUALIFIED_NAME), key_rules),
        "operator": choice("How the label's value relates to the listed values.", OPERATORS),
        # maxLength and pattern stand on the list in the released CRDs, where they say nothing; runtime validation looks at values
        "values": atomic("Values the operator needs.", {"type": "string"}, maxLength=63, pattern=LABEL_VALUE),
    }
    if min_values:
        fields["minValues"] = integer("How many distinct values must stay possible for this label.", low=1, high=50)
    item = record("One condition on a label of the machine.", fields, ("key", "operator"))
    return with_rules(atomic("Conditions on the machine's labels; all must hold.", item, maxItems=100), rules)


def taints(description: str) -> Node:
    item = record(
        "A taint on the node.",
        {
            "effect": choice("What happens to pods that do not tolerate the taint.", EFFECTS),
            "key": string("Key of the taint.", minLength=1, pattern=QUALIFIED_NAME),
            "timeAdded": moment("When the taint was put on; used with NoExecute."),
            "value": string("Value of the taint.", pattern=QUALIFIED_NAME),
        },
        ("effect", "key"),
    )
    return atomic(description, item)


def expire_after() -> Node:
    return string("How long a node may live before it is replaced, or Never.", default="720h", pattern=DURATION_OR_NEVER)


def termination_grace_period() -> Node:
    return string("How long pods may take to leave a node that is going away; then they are deleted.", pattern=DURATION)


def conditions(*, strict: bool = True, keyed: bool = True) -> Node:
    """Status conditions; NodeClaim's may lack reason and message (not `strict`), EC2NodeClass's list has no key."""
    item = record(
        "One observation about the object's state.",
        {
            "lastTransitionTime": moment("When the status last changed."),
            "message": string("Details for people.", maxLength=32768),
            "observedGeneration": integer("Generation of the object that was observed.", "int64", low=0),
            "reason": string("Why, in one word.", maxLength=1024, minLength=1, pattern=REASON)
            if strict
            else string("Why, in one word.", maxLength=1024, pattern=REASON_OR_NONE),
            "status": choice("Whether the condition holds.", ("True", "False", "Unknown")),
            "type": string("What is observed.", maxLength=316, pattern=CONDITION_TYPE),
        },
        ("lastTransitionTime", "status", "type") + (("message", "reason") if strict else ()),
    )
    more = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]} if keyed else {}
    return array("Observations about the object's state.", item, **more)


def column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> Node:
    """A column of `kubectl get`; a wide one shows only with `-o wide`."""
    return {"name": name, "jsonPath": path, "type": kind} | ({"priority": 1} if wide else {})


READY = column("Ready", '.status.conditions[?(@.type=="Ready")].status')
AGE = column("Age", ".metadata.creationTimestamp", "date")


def crd(
    group: str,
    kind: str,
    plural: str,
    *,
    columns: Sequence[Node],
    description: str,
    spec: Node,
    status: Node,
    required: Sequence[str] = ("spec",),
    version: str = "v1",
    short_names: Sequence[str] = (),
    scale: Mapping[str, str] | None = None,
    category: str = "karpenter",
    namespaced: bool = False,
) -> Node:
    names: Node = {
        "categories": [category],
        "kind": kind,
        "listKind": kind + "List",
        "plural": plural,
        "singular": kind.lower(),
    }
    if short_names:
        names["shortNames"] = list(short_names)
    fields = {
        "apiVersion": string("API version that the object is written in."),
        "kind": string("What the object is."),
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }
    subresources: Node = {"status": {}} | ({"scale": dict(scale)} if scale else {})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": list(columns),
                    "schema": {"openAPIV3Schema": record(description, fields, required)},
                    "subresources": subresources,
                }
            ],
        },
    }


NODE_POOL_KEYS = core.requirement_key(aws.LABEL_KEY, nodepool=False)
NODE_CLAIM_KEYS = core.requirement_key(aws.LABEL_KEY, nodepool=True)
OVERLAY_KEYS = core.requirement_key(aws.OVERLAY_KEY, nodepool=True)
