{{- define "copilot-grpc.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Names end at 52 characters, so that pods, and names with a suffix, stay within the 63 of a DNS label. */}}
{{- define "copilot-grpc.fullname" -}}
{{- $name := include "copilot-grpc.name" . }}
{{- if .Values.fullnameOverride }}
{{- $name = .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- $name = .Release.Name }}
{{- else }}
{{- $name = printf "%s-%s" .Release.Name $name }}
{{- end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "copilot-grpc.nats.name" -}}
{{- default (printf "%s-nats" (include "copilot-grpc.fullname" .)) .Values.nats.name }}
{{- end }}

{{- define "copilot-grpc.selectorLabels" -}}
app.kubernetes.io/name: {{ include "copilot-grpc.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "copilot-grpc.nats.selectorLabels" -}}
app.kubernetes.io/name: nats
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "copilot-grpc.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "copilot-grpc.labels" -}}
{{ include "copilot-grpc.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "copilot-grpc.commonLabels" . }}
{{- end }}

{{- define "copilot-grpc.nats.labels" -}}
{{ include "copilot-grpc.nats.selectorLabels" . }}
{{ include "copilot-grpc.commonLabels" . }}
{{- end }}

{{- define "copilot-grpc.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "copilot-grpc.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "copilot-grpc.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "copilot-grpc.tlsSecretName" -}}
{{- default (printf "%s-tls" (include "copilot-grpc.fullname" .)) .Values.tls.secretName }}
{{- end }}

{{- define "copilot-grpc.nodeSecretName" -}}
{{- default (printf "%s-node" (include "copilot-grpc.fullname" .)) .Values.cluster.node.tls.secretName }}
{{- end }}

{{- /* URLs of the NATS servers, with commas between them. */}}
{{- define "copilot-grpc.natsURLs" -}}
{{- if .Values.cluster.nats.urls }}
{{- join "," .Values.cluster.nats.urls }}
{{- else }}
{{- $name := include "copilot-grpc.nats.name" . }}
{{- $urls := list }}
{{- range $i := until (int .Values.nats.replicaCount) }}
{{- $urls = append $urls (printf "tls://%s-%d.%s:4222" $name $i $name) }}
{{- end }}
{{- join "," $urls }}
{{- end }}
{{- end }}

{{- /* The settings of the server: the chart's own, then those of the value config. */}}
{{- define "copilot-grpc.config" -}}
# The probes use the unix socket.
listen:
  - unix:/run/copilot-grpc/copilot-grpc.sock
  - 0.0.0.0:7443
tls_cert: /etc/copilot-grpc-tls/tls.crt
tls_key: /etc/copilot-grpc-tls/tls.key
{{- if .Values.tls.clientCASecretName }}
tls_client_ca: /etc/copilot-grpc-client-ca/ca.crt
{{- end }}
policy: /etc/copilot-grpc/policy.yaml
drain_grace: {{ .Values.drainGraceSeconds }}s
{{- if .Values.web.enabled }}
web_listen: 0.0.0.0:{{ .Values.web.port }}
{{- with .Values.web.url }}
web_url: {{ . }}
{{- end }}
{{- with .Values.web.origins }}
web_origins:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- if .Values.prometheus.enabled }}
admin_listen: 0.0.0.0:{{ .Values.prometheus.port }}
admin_wide: true
{{- end }}
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- if .Values.cluster.enabled }}
cluster: {{ include "copilot-grpc.natsURLs" . }}
cluster_name: {{ .Values.cluster.name }}
cluster_lease: {{ .Values.cluster.lease }}
cluster_creds: /etc/copilot-grpc-nats/nats.creds
cluster_ca: /etc/copilot-grpc-nats/ca.crt
node_listen: 0.0.0.0:{{ .Values.cluster.node.port }}
node_cert: /etc/copilot-grpc-node/tls.crt
node_key: /etc/copilot-grpc-node/tls.key
node_ca: /etc/copilot-grpc-node/ca.crt
{{- end }}
{{- end }}

{{- /* A call of the health service over the unix socket: the kubelet's own gRPC probe has neither TLS nor a token. */}}
{{- define "copilot-grpc.health" -}}
copilot-grpc call --target unix:/run/copilot-grpc/copilot-grpc.sock Health/Check
{{- end }}
