{{/* A worker's pod: of the live workers, and of the jobs that use their settings. */}}

{{- define "enricher.workerPod" -}}
{{- include "enricher.podBasics" . | nindent 0 }}
terminationGracePeriodSeconds: {{ include "enricher.gracePeriodSeconds" . }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if and .Values.gpu.enabled .Values.gpu.runtimeClassName }}
runtimeClassName: {{ .Values.gpu.runtimeClassName }}
{{- end }}
{{- with mergeOverwrite (ternary (deepCopy .Values.gpu.nodeSelector) dict .Values.gpu.enabled) .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (ternary .Values.gpu.tolerations list .Values.gpu.enabled) .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpread }}
topologySpreadConstraints:
  {{- range . }}
  - topologyKey: {{ .topologyKey }}
    maxSkew: {{ int .maxSkew }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "enricher.workerSelector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- if eq .Values.model.from "init" }}
initContainers:
  {{- include "enricher.modelContainer" . | nindent 2 }}
{{- end }}
containers:
  {{- include "enricher.workerContainer" . | nindent 2 }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: {{ .Values.tmpSizeLimit }}
  - name: cache
    emptyDir:
      sizeLimit: {{ .Values.model.cacheSizeLimit }}
  {{- if eq .Values.model.from "volume" }}
  - name: model
    persistentVolumeClaim:
      claimName: {{ .Values.model.volume.existingClaim }}
      readOnly: true
  {{- else if eq .Values.model.from "init" }}
  - name: model
    emptyDir:
      sizeLimit: {{ .Values.model.init.sizeLimit }}
  {{- end }}
  {{- with include "enricher.secretVolumes" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "enricher.workerContainer" -}}
- name: worker
  image: {{ include "enricher.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- /* No `command`: the image's entry point is `enricher`. */}}
  args:
    {{- .arguments | default (include "enricher.runArguments" . | fromYamlArray) | toYaml | nindent 4 }}
  env:
    {{- include "enricher.telemetryEnv" . | nindent 4 }}
    {{- include "enricher.env" . | trim | nindent 4 }}
  ports:
    {{- range $number, $name := include "enricher.healthPorts" . | fromJsonArray }}
    - name: {{ $name }}
      containerPort: {{ add $.Values.health.port $number }}
      protocol: TCP
    {{- end }}
    - name: probes
      containerPort: {{ int .Values.health.probePort }}
      protocol: TCP
  {{- include "enricher.probes" . | trim | nindent 2 }}
  resources:
    {{- include "enricher.workerResources" . | nindent 4 }}
  securityContext:
    {{- include "enricher.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    - name: cache
      mountPath: /var/cache/enricher
    {{- if ne .Values.model.from "image" }}
    - name: model
      mountPath: /model
      readOnly: true
    {{- end }}
    {{- with include "enricher.secretMounts" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "enricher.probes" -}}
{{- with .Values.probes.startup }}
startupProbe:
  httpGet:
    path: /startupz
    port: probes
  periodSeconds: {{ int .periodSeconds }}
  timeoutSeconds: 3
  failureThreshold: {{ divf .timeoutSeconds .periodSeconds | ceil | int }}
{{- end }}
{{- with .Values.probes.readiness }}
readinessProbe:
  httpGet:
    path: /readyz
    port: probes
  periodSeconds: {{ int .periodSeconds }}
  timeoutSeconds: {{ int .timeoutSeconds }}
  failureThreshold: {{ int .failureThreshold }}
{{- end }}
{{- with .Values.probes.liveness }}
livenessProbe:
  httpGet:
    path: /livez
    port: probes
  periodSeconds: {{ int .periodSeconds }}
  timeoutSeconds: {{ int .timeoutSeconds }}
  failureThreshold: {{ int .failureThreshold }}
{{- end }}
{{- end }}

{{- define "enricher.workerResources" -}}
{{- /* GPUs are set as limits; Kubernetes uses the limit as the request. */ -}}
{{- $resources := deepCopy .Values.resources -}}
{{- if .Values.gpu.enabled -}}
{{- $gpus := dict .Values.gpu.resource (toString (int .Values.gpu.count)) -}}
{{- $_ := set $resources "limits" (merge (default dict $resources.limits) $gpus) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{- define "enricher.modelContainer" -}}
{{- $init := .Values.model.init -}}
- name: model
  image: {{ default (include "enricher.image" .) $init.image | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- with $init.command }}
  command:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $init.args }}
  args:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  env:
    - name: HOME
      value: /tmp
    - name: MODEL_DIR
      value: {{ include "enricher.modelSource" . | quote }}
    - name: HF_HOME
      value: /var/cache/enricher/huggingface
    {{- with $init.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  resources:
    {{- toYaml $init.resources | nindent 4 }}
  securityContext:
    {{- include "enricher.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: model
      mountPath: /model
    - name: cache
      mountPath: /var/cache/enricher
    - name: tmp
      mountPath: /tmp
    {{- with $init.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- define "enricher.healthPorts" -}}
{{- /* The names of the ports with page and metrics: one for each process of a worker's pod. */ -}}
{{- $names := list "health" -}}
{{- range untilStep 1 (int .Values.processes) 1 -}}{{- $names = append $names (printf "health-%d" .) -}}{{- end -}}
{{- toJson $names -}}
{{- end }}

{{- define "enricher.runArguments" -}}
- run
{{- if gt (int .Values.processes) 1 }}
- --processes={{ int .Values.processes }}
{{- end }}
{{- end }}
