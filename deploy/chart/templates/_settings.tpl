{{/* The worker's settings: those in the values, those that follow from other values, and the defaults. */}}

{{- define "enricher.modelSource" -}}
{{- $model := .Values.model -}}
{{- if eq $model.from "image" -}}
{{- $model.path -}}
{{- else -}}
{{- trimSuffix "/" (printf "/model/%s" $model.path) -}}
{{- end -}}
{{- end }}

{{- define "enricher.concurrency" -}}
{{- /* Concurrency on CPU. By default a worker uses every core that it sees, with memory for each, and without a CPU limit it sees
all cores of the node. So it gets one run per requested whole CPU, at most the setting's maximum. */ -}}
{{- $asked := get (default dict .Values.resources.requests) "cpu" | toString -}}
{{- $limited := hasKey (default dict .Values.resources.limits) "cpu" -}}
{{- if and $asked (not $limited) (not .Values.gpu.enabled) (kindIs "invalid" (dig "model" "concurrency" nil .Values.settings)) -}}
{{- $cores := ternary (divf (trimSuffix "m" $asked | float64) 1000) (float64 $asked) (hasSuffix "m" $asked) -}}
{{- divf $cores .Values.processes | floor | int | max 1 | min 64 -}}
{{- end -}}
{{- end }}

{{- define "enricher.kafkaProperties" -}}
{{- $tls := .Values.kafka.tls -}}
{{- $sasl := .Values.kafka.sasl -}}
{{- $made := dict -}}
{{- if $tls.enabled -}}
{{- $_ := set $made "security.protocol" (ternary "SASL_SSL" "SSL" (or $sasl.enabled (dig "kafka" "token" "" .Values.settings | empty | not))) -}}
{{- if $tls.ca.existingSecret -}}
{{- $_ := set $made "ssl.ca.location" (printf "/run/secrets/kafka-ca/%s" $tls.ca.key) -}}
{{- end -}}
{{- if $tls.client.existingSecret -}}
{{- $_ := set $made "ssl.certificate.location" (printf "/run/secrets/kafka-client/%s" $tls.client.certificateKey) -}}
{{- $_ := set $made "ssl.key.location" (printf "/run/secrets/kafka-client/%s" $tls.client.privateKeyKey) -}}
{{- with $tls.client.passwordKey -}}
{{- $_ := set $made "ssl.key.password" (dict "file" (printf "/run/secrets/kafka-client/%s" .)) -}}
{{- end -}}
{{- end -}}
{{- else if $sasl.enabled -}}
{{- $_ := set $made "security.protocol" "SASL_PLAINTEXT" -}}
{{- end -}}
{{- if $sasl.enabled -}}
{{- $_ := set $made "sasl.mechanism" $sasl.mechanism -}}
{{- $file := dict "file" (printf "/run/secrets/kafka-sasl/%s" $sasl.usernameKey) -}}
{{- $_ := set $made "sasl.username" (ternary $sasl.username $file (ne $sasl.username "")) -}}
{{- $_ := set $made "sasl.password" (dict "file" (printf "/run/secrets/kafka-sasl/%s" $sasl.passwordKey)) -}}
{{- end -}}
{{- mergeOverwrite $made (default dict (dig "kafka" "properties" dict .Values.settings)) | toJson -}}
{{- end }}

{{- define "enricher.registryProperties" -}}
{{- $made := dict -}}
{{- with .Values.registry.tls.ca -}}
{{- if .existingSecret -}}
{{- $_ := set $made "ssl.ca.location" (printf "/run/secrets/registry-ca/%s" .key) -}}
{{- end -}}
{{- end -}}
{{- with .Values.registry.tls.client -}}
{{- if .existingSecret -}}
{{- $_ := set $made "ssl.certificate.location" (printf "/run/secrets/registry-client/%s" .certificateKey) -}}
{{- $_ := set $made "ssl.key.location" (printf "/run/secrets/registry-client/%s" .privateKeyKey) -}}
{{- with .passwordKey -}}
{{- $_ := set $made "ssl.key.password" (dict "file" (printf "/run/secrets/registry-client/%s" .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.registry.auth -}}
{{- if ne .kind "none" -}}
{{- $name := ternary "basic.auth.user.info" "bearer.auth.token" (eq .kind "basic") -}}
{{- $_ := set $made $name (dict "file" (printf "/run/secrets/registry-auth/%s" .key)) -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $made (default dict (dig "registry" "properties" dict .Values.settings)) | toJson -}}
{{- end }}

{{- define "enricher.settings" -}}
{{- /* All settings that differ from the worker's defaults, as JSON. */ -}}
{{- $made := dict -}}
{{- $kafka := include "enricher.kafkaProperties" . | fromJson -}}
{{- if $kafka }}{{- $_ := set $made "kafka" (dict "properties" $kafka) -}}{{- end -}}
{{- $registry := include "enricher.registryProperties" . | fromJson -}}
{{- if or $registry .Values.settings.registry -}}
{{- $_ := set $made "registry" (dict "properties" $registry "cache_dir" "/var/cache/enricher/schemas") -}}
{{- end -}}
{{- /* Only the pods of the index have these settings, and the files that they name. */ -}}
{{- $index := dict -}}
{{- with .Values.index -}}
{{- if ne .auth.kind "none" -}}
{{- $_ := set $index (ternary "password_file" "api_key_file" (eq .auth.kind "basic")) (printf "/run/secrets/index-auth/%s" .auth.key) -}}
{{- end -}}
{{- if .ca.existingSecret -}}
{{- $_ := set $index "ca_file" (printf "/run/secrets/index-ca/%s" .ca.key) -}}
{{- end -}}
{{- end -}}
{{- if and .forIndex $index }}{{- $_ := set $made "index" $index -}}{{- end -}}
{{- $model := dict "device" (ternary "cuda" "cpu" .Values.gpu.enabled) "cache_dir" "/var/cache/enricher" -}}
{{- /* Tasks name their models themselves. */ -}}
{{- if not .Values.settings.tasks -}}
{{- with include "enricher.modelSource" . }}{{- $_ := set $model "source" . -}}{{- end -}}
{{- end -}}
{{- with include "enricher.concurrency" . }}{{- $_ := set $model "concurrency" (int .) -}}{{- end -}}
{{- $_ := set $made "model" $model -}}
{{- /* Every address, of IPv6 and IPv4: pods have either or both. */ -}}
{{- $health := dict "host" (dig "health" "host" "::" .Values.settings) "port" .Values.health.port "probe_port" .Values.health.probePort -}}
{{- $_ := set $made "health" $health -}}
{{- mergeOverwrite (omit (deepCopy .Values.settings) (ternary "" "index" (.forIndex | default false))) $made | toJson -}}
{{- end }}

{{- define "enricher.setting" -}}
{{- /* The value of one setting that is in force. Arguments: (list . "group" "field"). */ -}}
{{- $root := index . 0 -}}{{- $group := index . 1 -}}{{- $field := index . 2 -}}
{{- $defaults := $root.Files.Get "files/settings-defaults.json" | fromJson -}}
{{- $said := dig $group $field nil $root.Values.settings -}}
{{- ternary (get (get $defaults $group) $field) $said (kindIs "invalid" $said) -}}
{{- end }}

{{- define "enricher.inputs" -}}
{{- /* The input topics, as a JSON array. */ -}}
{{- $several := dig "kafka" "input_topics" list .Values.settings -}}
{{- ternary $several (list (include "enricher.setting" (list . "kafka" "input_topic"))) (gt (len $several) 0) | toJson -}}
{{- end }}

{{- define "enricher.gracePeriodSeconds" -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- $drain := include "enricher.setting" (list . "worker" "drain_timeout_s") | float64 -}}
{{- $transaction := include "enricher.setting" (list . "kafka" "transaction_timeout_s") | float64 -}}
{{- $stall := include "enricher.setting" (list . "worker" "stall_timeout_s") | float64 -}}
{{- addf $drain $transaction $stall | ceil | int64 -}}
{{- else -}}
{{- int64 .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end }}

{{- define "enricher.env" -}}
{{- range $group, $fields := omit (include "enricher.settings" . | fromJson) "tasks" }}
{{- range $field, $value := $fields }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ printf "ENRICHER_%s__%s" $group $field | upper }}
  {{- /* As JSON, because Helm would write a large number as 1.6e+07. */}}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.settings.tasks }}
- name: ENRICHER_TASKS
  value: {{ toJson . | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "enricher.telemetryEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- with .Values.otlp }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ .protocol | quote }}
- name: OTEL_TRACES_SAMPLER
  value: {{ .sampler | quote }}
{{- with .samplerArgument }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ . | quote }}
{{- end }}
- name: OTEL_SERVICE_NAME
  value: {{ include "enricher.job" $ | quote }}
- name: OTEL_RESOURCE_ATTRIBUTES
  {{- /* With several processes, each sets its own instance id: with a common one, their traces could not be told apart. */}}
  value: "k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)
    {{- if eq (int $.Values.processes) 1 }},service.instance.id=$(POD_NAMESPACE).$(POD_NAME){{ end }}
    {{- range $name, $value := .resourceAttributes }},{{ $name }}={{ $value }}{{ end }}"
{{- with .headers }}
{{- if .existingSecret }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .existingSecret }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
