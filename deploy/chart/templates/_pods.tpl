{{/* Parts of every pod: Kubernetes' restricted security standard, and the secrets of Kafka and the registry as files. */}}

{{- define "enricher.podSecurity" -}}
runAsNonRoot: true
{{- range $name, $value := .Values.security }}
{{- if not (kindIs "invalid" $value) }}
{{ $name }}: {{ int64 $value }}
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "enricher.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "enricher.podBasics" -}}
serviceAccountName: {{ include "enricher.serviceAccountName" . }}
automountServiceAccountToken: false
{{- /* The variables of a Service named `enricher` would begin with ENRICHER_, and the worker refuses unknown settings. */}}
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "enricher.podSecurity" . | nindent 2 }}
{{- end }}

{{- define "enricher.secretVolumes" -}}
{{- $tls := .Values.kafka.tls -}}
{{- $sasl := .Values.kafka.sasl -}}
{{- if and $tls.enabled $tls.ca.existingSecret }}
{{ include "enricher.secretVolume" (list "kafka-ca" $tls.ca.existingSecret (list $tls.ca.key)) }}
{{- end }}
{{- if and $tls.enabled $tls.client.existingSecret }}
{{- $keys := list $tls.client.certificateKey $tls.client.privateKeyKey $tls.client.passwordKey | compact }}
{{ include "enricher.secretVolume" (list "kafka-client" $tls.client.existingSecret $keys) }}
{{- end }}
{{- if $sasl.enabled }}
{{- $keys := prepend (ternary (list) (list $sasl.usernameKey) (ne $sasl.username "")) $sasl.passwordKey }}
{{ include "enricher.secretVolume" (list "kafka-sasl" $sasl.existingSecret $keys) }}
{{- end }}
{{- with .Values.registry.tls.ca.existingSecret }}
{{ include "enricher.secretVolume" (list "registry-ca" . (list $.Values.registry.tls.ca.key)) }}
{{- end }}
{{- with .Values.registry.tls.client }}
{{- if .existingSecret }}
{{ include "enricher.secretVolume" (list "registry-client" .existingSecret (list .certificateKey .privateKeyKey .passwordKey | compact)) }}
{{- end }}
{{- end }}
{{- if ne .Values.registry.auth.kind "none" }}
{{ include "enricher.secretVolume" (list "registry-auth" .Values.registry.auth.existingSecret (list .Values.registry.auth.key)) }}
{{- end }}
{{- end }}

{{- define "enricher.secretVolume" -}}
{{- /* Mounts only the keys that are used. Arguments: (list "volume" "secret" keys). */ -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
    items:
    {{- range index . 2 }}
      - key: {{ . }}
        path: {{ . }}
    {{- end }}
{{- end }}

{{- define "enricher.secretMounts" -}}
{{- range include "enricher.secretVolumes" . | fromYamlArray }}
- name: {{ .name }}
  mountPath: /run/secrets/{{ .name }}
  readOnly: true
{{- end }}
{{- end }}
