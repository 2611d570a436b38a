"""The rules of CapacityBuffer. Source: spec/scheduling 9.2."""

from kubewright.api.rules.rule import Rule, has

SIZE_FOR_TEMPLATE = Rule(
    "has(self.replicas) || has(self.limits) || !has(self.podTemplateRef)",
    "If podTemplateRef is set, replicas or limits must also be set",
    lambda spec, _: has(spec, "replicas") or has(spec, "limits") or not has(spec, "podTemplateRef"),
)
NOT_BOTH = Rule(
    "!has(self.podTemplateRef) || !has(self.scalableRef)",
    "You must define either PodTemplateRef or ScalableRef, but not both",
    lambda spec, _: not (has(spec, "podTemplateRef") and has(spec, "scalableRef")),
)
SPEC = (SIZE_FOR_TEMPLATE, NOT_BOTH)
