{{/* What `kubewright run` reads from its environment, one variable for each setting that has a value. */}}
{{- define "kubewright.settings" -}}
{{- $gates := list }}
{{- range $name, $open := .Values.settings.featureGates }}
{{- $gates = append $gates (printf "%s%s=%v" (substr 0 1 $name | upper) (substr 1 -1 $name) $open) }}
{{- end }}
{{- $awsGates := list }}
{{- range $name, $open := .Values.settings.awsFeatureGates }}
{{- $awsGates = append $awsGates (printf "%s%s=%v" (substr 0 1 $name | upper) (substr 1 -1 $name) $open) }}
{{- end }}
{{- $settings := .Values.settings }}
{{- $isAws := eq $settings.cloud "aws" }}
{{- $variables := list
  (list "LOG_LEVEL" .Values.logLevel)
  (list "LOG_OUTPUT_PATHS" (join "," .Values.logOutputPaths))
  (list "LOG_ERROR_OUTPUT_PATHS" (join "," .Values.logErrorOutputPaths))
  (list "METRICS_PORT" .Values.controller.metrics.port)
  (list "HEALTH_PROBE_PORT" .Values.controller.healthProbe.port)
  (list "LEADER_ELECTION_NAME" .Values.leaderElection.name)
  (list "LEADER_ELECTION_NAMESPACE" (include "kubewright.leaseNamespace" .))
  (list "FEATURE_GATES" (join "," $gates))
  (list "BATCH_MAX_DURATION" $settings.batchMaxDuration)
  (list "BATCH_IDLE_DURATION" $settings.batchIdleDuration)
  (list "PREFERENCE_POLICY" $settings.preferencePolicy)
  (list "MIN_VALUES_POLICY" $settings.minValuesPolicy)
  (list "IGNORE_DRA_REQUESTS" $settings.ignoreDRARequests)
  (list "CLUSTER_NAME" $settings.clusterName)
  (list "KUBEWRIGHT_CLOUD" $settings.cloud)
  (list "KUBEWRIGHT_PACKING" $settings.packing)
  (list "KUBEWRIGHT_PACKING_BUDGET" $settings.packingBudget)
}}
{{- if $settings.disableClusterStateObservability }}
{{- $variables = append $variables (list "DISABLE_CLUSTER_STATE_OBSERVABILITY" true) }}
{{- end }}
{{- if $settings.takeOver }}
{{- $variables = append $variables (list "KUBEWRIGHT_TAKE_OVER" true) }}
{{- end }}
{{- if $isAws }}
{{- $variables = concat $variables (list
  (list "CLUSTER_CA_BUNDLE" $settings.clusterCABundle)
  (list "CLUSTER_ENDPOINT" $settings.clusterEndpoint)
  (list "ISOLATED_VPC" $settings.isolatedVPC)
  (list "EKS_CONTROL_PLANE" $settings.eksControlPlane)
  (list "VM_MEMORY_OVERHEAD_PERCENT" $settings.vmMemoryOverheadPercent)
  (list "INTERRUPTION_QUEUE" $settings.interruptionQueue)
  (list "ENABLE_ZONAL_SHIFT" $settings.enableZonalShift)
  (list "RESERVED_ENIS" $settings.reservedENIs)
  (list "DISABLE_DRY_RUN" $settings.disableDryRun)
  (list "AMI_REFRESH_INTERVAL" $settings.amiRefreshInterval)
  (list "SUBNET_REFRESH_INTERVAL" $settings.subnetRefreshInterval)
  (list "AWS_FEATURE_GATES" (join "," $awsGates))
) }}
{{- end }}
{{- $lines := list }}
{{- range $pair := $variables }}
{{- $line := include "kubewright.env" (dict "name" (index $pair 0) "value" (index $pair 1)) }}
{{- if $line }}{{ $lines = append $lines (trim $line) }}{{ end }}
{{- end }}
{{- join "\n" $lines }}
{{- end }}
