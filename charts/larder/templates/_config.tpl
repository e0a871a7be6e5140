{{/* The operator's file; `larder-operator --check-config` knows every key. */}}
{{- define "larder.config" -}}
{{- $config := dict
  "image" (include "larder.image" .)
  "image_pull_policy" .Values.image.pullPolicy
  "image_pull_secrets" .Values.image.pullSecrets
  "service_account" (include "larder.name" .)
  "agent_cluster_role" (printf "%s-agent" (include "larder.clusterName" .))
  "master_cluster_role" (printf "%s-master" (include "larder.clusterName" .))
  "metrics_addr" "0.0.0.0:8080"
  "concurrency" (int .Values.operator.concurrency)
  "log" (dict "format" .Values.operator.log.format "filter" .Values.operator.log.filter)
-}}
{{- with .Values.watchNamespace }}{{- $_ := set $config "watch_namespace" . }}{{- end -}}
{{- toPrettyJson $config -}}
{{- end }}
