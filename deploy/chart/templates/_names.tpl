{{/* Names and labels. */}}

{{- define "enricher.fullname" -}}
{{- /* 52: a StatefulSet labels its pods with `<name>-<hash>`, and a label may have 63 characters. */ -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "enricher.job" -}}
{{- /* The release's job in metrics. The alerts select jobs whose name contains "enricher". */ -}}
{{- $full := include "enricher.fullname" . -}}
{{- ternary $full (printf "enricher-%s" $full) (contains "enricher" $full) -}}
{{- end }}

{{- define "enricher.serviceAccountName" -}}
{{- default (ternary (include "enricher.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{- define "enricher.userName" -}}
{{- default (include "enricher.fullname" .) .Values.strimzi.user.name -}}
{{- end }}

{{- define "enricher.image" -}}
{{- $tag := default (printf "%s-%s" .Chart.AppVersion (ternary "cuda" "cpu" .Values.gpu.enabled)) .Values.image.tag -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{- define "enricher.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "enricher.podLabels" -}}
{{- /* No versions: a new version of the chart must not roll unchanged pods, which would all load their model again. */ -}}
{{ include "enricher.selector" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "enricher.workerSelector" -}}
{{ include "enricher.selector" . }}
app.kubernetes.io/component: worker
{{- end }}

{{- define "enricher.labels" -}}
{{ include "enricher.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
