{{/* Refuses values that contradict one another, which the schema cannot express. Included by the StatefulSet, which is always rendered. */}}

{{- define "enricher.refuse" -}}
{{- $most := include "enricher.mostWorkers" . | int -}}
{{- $what := ternary "replicas" "autoscaling.maxReplicas" (eq .Values.autoscaling.mode "none") -}}
{{- $partitions := include "enricher.partitions" . -}}
{{- $workers := mul $most (int .Values.processes) -}}
{{- if and $partitions (gt $workers (int $partitions)) -}}
{{- fail (printf "%s (%d) makes %d workers, but the input topic has %s partitions: the rest would have nothing to do" $what $most $workers $partitions) -}}
{{- end -}}
{{- if and .Values.gpu.enabled .Values.capacity.gpus (gt (mul $most (int .Values.gpu.count)) (int .Values.capacity.gpus)) -}}
{{- fail (printf "%s is %d, with %d GPU each, but there are %d: the rest would stay pending and keep nodes from being drained" $what $most (int .Values.gpu.count) (int .Values.capacity.gpus)) -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas (%d) is above autoscaling.maxReplicas (%d)" (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if and (ne .mode "none") (gt (int $.Values.processes) 1) -}}
{{- fail "processes above 1 needs autoscaling.mode none: both autoscalers count pods, and take each for one worker" -}}
{{- end -}}
{{- if eq .mode "keda" -}}
{{- if not .keda.prometheus.serverAddress -}}
{{- fail "autoscaling.mode keda needs autoscaling.keda.prometheus.serverAddress: KEDA asks it how busy the workers are" -}}
{{- end -}}
{{- range $property, $_ := dig "kafka" "properties" dict $.Values.settings -}}
{{- if and (regexMatch "^(sasl|ssl|security)[.]" $property) (not $.Values.autoscaling.keda.kafka.authentication) -}}
{{- fail (printf "KEDA does not read settings.kafka.properties (%s): name a TriggerAuthentication in autoscaling.keda.kafka.authentication, and what else the trigger needs in autoscaling.keda.kafka.metadata" $property) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (eq .mode "keda") (dig "kafka" "token" "" $.Values.settings) (not .keda.kafka.authentication) -}}
{{- fail "KEDA does not read settings.kafka.token: name a TriggerAuthentication in autoscaling.keda.kafka.authentication, and what else the trigger needs in autoscaling.keda.kafka.metadata" -}}
{{- end -}}
{{- if and (eq .mode "hpa") (lt (int .minReplicas) 1) -}}
{{- fail "autoscaling.minReplicas: 0 needs autoscaling.mode keda; a HorizontalPodAutoscaler keeps at least one" -}}
{{- end -}}
{{- end -}}
{{- with .Values.kafka -}}
{{- if and (or .tls.client.existingSecret .tls.ca.existingSecret) (not .tls.enabled) -}}
{{- fail "kafka.tls names a Secret, but kafka.tls.enabled is false" -}}
{{- end -}}
{{- if and .sasl.existingSecret (not .sasl.enabled) -}}
{{- fail "kafka.sasl names a Secret, but kafka.sasl.enabled is false" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.kafka.sasl.enabled (dig "kafka" "token" "" .Values.settings) -}}
{{- fail "kafka.sasl.enabled and settings.kafka.token are two ways to sign in: choose one" -}}
{{- end -}}
{{- if and .Values.kafka.sasl.enabled (not .Values.kafka.sasl.existingSecret) -}}
{{- fail "kafka.sasl.enabled needs kafka.sasl.existingSecret: the name of a Secret with the password" -}}
{{- end -}}
{{- with .Values.registry.auth -}}
{{- if and (ne .kind "none") (not .existingSecret) -}}
{{- fail (printf "registry.auth.kind %s needs registry.auth.existingSecret: the name of a Secret with the credentials" .kind) -}}
{{- end -}}
{{- if and (eq .kind "none") .existingSecret -}}
{{- fail "registry.auth names a Secret, but registry.auth.kind is none" -}}
{{- end -}}
{{- end -}}
{{- $registry := .Values.registry -}}
{{- $secrets := list $registry.tls.ca.existingSecret $registry.tls.client.existingSecret $registry.auth.existingSecret | compact -}}
{{- if and $secrets (not (dig "registry" "url" "" .Values.settings)) -}}
{{- fail "registry names a Secret, but settings.registry.url is empty" -}}
{{- end -}}
{{- if and .Values.settings.tasks (ne .Values.model.from "init") .Values.model.path -}}
{{- fail "model.path has no effect beside settings.tasks: name the folder of each model in the task, settings.tasks.NAME.source" -}}
{{- end -}}
{{- if and (eq .Values.model.from "volume") (not .Values.model.volume.existingClaim) -}}
{{- fail "model.from: volume needs model.volume.existingClaim: the name of a claim that holds the model" -}}
{{- end -}}
{{- if and (eq .Values.model.from "init") (not (concat .Values.model.init.command .Values.model.init.args)) (not .Values.model.init.image) -}}
{{- fail "model.from: init needs model.init.image, model.init.command or model.init.args: what puts the model into $MODEL_DIR" -}}
{{- end -}}
{{- if .Values.index.enabled -}}
{{- if not (dig "index" "url" "" .Values.settings) -}}
{{- fail "index.enabled needs settings.index.url: where the search index is" -}}
{{- end -}}
{{- with .Values.index.auth -}}
{{- if and (ne .kind "none") (not .existingSecret) -}}
{{- fail (printf "index.auth.kind %s needs index.auth.existingSecret: the name of a Secret with the credentials" .kind) -}}
{{- end -}}
{{- if and (eq .kind "none") .existingSecret -}}
{{- fail "index.auth names a Secret, but index.auth.kind is none" -}}
{{- end -}}
{{- if ne (eq .kind "basic") (ne (dig "index" "username" "" $.Values.settings) "") -}}
{{- fail "settings.index.username and index.auth.kind basic belong together" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.replay -}}
{{- if and .enabled (not (and .into .group)) -}}
{{- fail "replay.enabled needs replay.into and replay.group: a topic and a consumer group of its own" -}}
{{- end -}}
{{- if and .enabled (eq .group (include "enricher.setting" (list $ "kafka" "group_id"))) -}}
{{- fail (printf "replay.group %s is the group of the live workers: it needs another one" .group) -}}
{{- end -}}
{{- end -}}
{{- if and (or .Values.strimzi.topics.enabled .Values.strimzi.user.enabled) (not .Values.strimzi.cluster) -}}
{{- fail "strimzi.topics and strimzi.user need strimzi.cluster: the name of the Kafka object" -}}
{{- end -}}
{{- end }}

{{- define "enricher.mostWorkers" -}}
{{- ternary .Values.replicas .Values.autoscaling.maxReplicas (eq .Values.autoscaling.mode "none") | int -}}
{{- end }}

{{- define "enricher.partitions" -}}
{{- /* Partitions of the input topic; empty if unknown. */ -}}
{{- if .Values.capacity.partitions -}}
{{- int .Values.capacity.partitions -}}
{{- else if .Values.strimzi.topics.enabled -}}
{{- int .Values.strimzi.topics.partitions -}}
{{- end -}}
{{- end }}
