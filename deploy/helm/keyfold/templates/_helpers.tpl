{{/* Parts that several files share. Each takes (dict "root" $ …): .root is the chart's own context. */}}

{{- define "keyfold.selector" -}}
app.kubernetes.io/name: keyfold
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "keyfold.labels" -}}
{{ include "keyfold.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: keyfold
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "keyfold.image" -}}
{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* One variable for each entry of .secrets, which names keys of the Secret. */}}
{{- define "keyfold.secretEnv" -}}
{{- range $name, $key := .secrets }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $.root.Values.existingSecret }}, key: {{ $key }}}}
{{- end }}
{{- end }}

{{/* The environment of a container that runs `keyfold`; .settings are its own. */}}
{{- define "keyfold.env" -}}
{{- $warehouse := .root.Values.warehouse.url | default "/warehouse/keyfold" }}
{{- $fixed := dict "KEYFOLD_DATA" "/data/keyfold" "KEYFOLD_WAREHOUSE" $warehouse }}
{{- $catalog := dict "KEYFOLD_DATABASE_URL" "database-url" }}
{{- $secrets := merge $catalog .root.Values.secretSettings .root.Values.warehouse.credentials }}
{{- include "keyfold.secretEnv" (dict "root" .root "secrets" $secrets) | trim }}
{{- range $name, $value := merge $fixed .settings .root.Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "keyfold.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "keyfold.mounts" -}}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  {{- if not .root.Values.warehouse.url }}
  - {name: warehouse, mountPath: /warehouse}
  {{- end }}
{{- end }}

{{- define "keyfold.volumes" -}}
- name: data
  emptyDir: {sizeLimit: {{ .root.Values.serve.dataSize }}}
- name: tmp
  emptyDir: {}
{{- if not .root.Values.warehouse.url }}
- name: warehouse
  persistentVolumeClaim: {claimName: {{ .root.Release.Name }}-warehouse}
{{- end }}
{{- end }}

{{/* Without service links: a Service called keyfold would set KEYFOLD_PORT to an address. */}}
{{- define "keyfold.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .root.Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/*
Every pod migrates the catalog before it starts. A hook cannot do it: before an installation there is no bundled
PostgreSQL yet, and after it `helm install --wait` waits for services that wait for the migration. PostgreSQL's lock
lets one pod migrate at a time. A catalog that is current is only read.
*/}}
{{- define "keyfold.migrate" -}}
- name: migrate
  image: {{ include "keyfold.image" . }}
  args: [migrate]
  env:
    {{- include "keyfold.env" (dict "root" .root "settings" dict) | nindent 4 }}
  resources: {{- toYaml .root.Values.worker.resources | nindent 4 }}
  {{- include "keyfold.containerSecurity" . | nindent 2 }}
  {{- include "keyfold.mounts" . | nindent 2 }}
{{- end }}
