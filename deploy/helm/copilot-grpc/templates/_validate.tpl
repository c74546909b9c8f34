{{- /* Values that contradict each other. statefulset.yaml, which every release has, includes this. */}}
{{- define "copilot-grpc.validate" -}}
{{- $v := .Values }}
{{- $problems := list }}
{{- if and (gt (int $v.replicaCount) 1) (not $v.cluster.enabled) }}
{{- $problems = append $problems (printf "replicaCount is %d without cluster.enabled: a session belongs to the server that created it. Set cluster.enabled with NATS, or install a release for each server" (int $v.replicaCount)) }}
{{- end }}
{{- if and $v.tls.secretName $v.tls.certManager.enabled }}
{{- $problems = append $problems "tls.secretName and tls.certManager.enabled are both set: use the secret, or let cert-manager make one" }}
{{- end }}
{{- if not (or $v.tls.secretName $v.tls.certManager.enabled) }}
{{- $problems = append $problems "tls.secretName or tls.certManager.enabled is required: the server listens for other machines only with TLS" }}
{{- end }}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) }}
{{- $problems = append $problems "tls.certManager.issuerRef.name is required with tls.certManager.enabled" }}
{{- end }}
{{- if and (eq $v.service.type "Headless") (ne (int $v.service.port) 7443) }}
{{- $problems = append $problems (printf "service.port is %d with service.type Headless: callers connect to the pods, which listen on 7443. Set service.type to ClusterIP or LoadBalancer" (int $v.service.port)) }}
{{- end }}
{{- $problems = concat $problems (include "copilot-grpc.validate.policy" . | fromYamlArray) }}
{{- $problems = concat $problems (include "copilot-grpc.validate.cluster" . | fromYamlArray) }}
{{- if and $v.autoscaling.enabled (not $v.cluster.enabled) }}
{{- $problems = append $problems "autoscaling.enabled requires cluster.enabled: one server cannot give its sessions to others" }}
{{- end }}
{{- if and $v.autoscaling.enabled (not $v.prometheus.enabled) }}
{{- $problems = append $problems "autoscaling.enabled requires prometheus.enabled, which has the metric copilot_turns_running" }}
{{- end }}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) }}
{{- $problems = append $problems (printf "autoscaling.minReplicas is %d, more than autoscaling.maxReplicas, %d" (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) }}
{{- end }}
{{- if and $v.prometheus.enabled (not $v.prometheus.tokenSecretName) }}
{{- $problems = append $problems "prometheus.tokenSecretName is required with prometheus.enabled: metrics on the network need a token" }}
{{- end }}
{{- if and $v.prometheus.serviceMonitor.enabled (not $v.prometheus.enabled) }}
{{- $problems = append $problems "prometheus.serviceMonitor.enabled requires prometheus.enabled" }}
{{- end }}
{{- $ports := dict "7443" "gRPC" }}
{{- range $where, $port := dict "web.port" (ternary $v.web.port 0 $v.web.enabled) "prometheus.port" (ternary $v.prometheus.port 0 $v.prometheus.enabled) "cluster.node.port" (ternary $v.cluster.node.port 0 $v.cluster.enabled) }}
{{- $number := int $port | toString }}
{{- with get $ports $number }}
{{- $problems = append $problems (printf "%s is %s, which is the port of %s, too" $where $number .) }}
{{- end }}
{{- if int $port }}
{{- $_ := set $ports $number $where }}
{{- end }}
{{- end }}
{{- if $problems }}
{{- fail (printf "\n\ncopilot-grpc: the values cannot work:\n  - %s\n" (join "\n  - " $problems)) }}
{{- end }}
{{- end }}

{{- define "copilot-grpc.validate.policy" -}}
{{- $policy := .Values.policy }}
{{- $identity := default dict $policy.identity }}
{{- $problems := list }}
{{- if not $policy }}
{{- $problems = append $problems "policy is required: it says who may call (docs/security.md)" }}
{{- else if not (or $identity.oidc $identity.certificates $identity.tokens) }}
{{- $problems = append $problems "policy.identity has none of oidc, certificates and tokens: nobody could call" }}
{{- end }}
{{- if and $identity.certificates (not .Values.tls.clientCASecretName) }}
{{- $problems = append $problems "policy.identity.certificates requires tls.clientCASecretName, the CAs of client certificates" }}
{{- end }}
{{- if and .Values.tls.clientCASecretName (not $identity.certificates) }}
{{- $problems = append $problems "tls.clientCASecretName requires policy.identity.certificates: otherwise client certificates prove nothing" }}
{{- end }}
{{- if and $identity.proxies (not $identity.certificates) }}
{{- $problems = append $problems "policy.identity.proxies requires policy.identity.certificates: proxies are known by their client certificates" }}
{{- end }}
{{- $issuers := list }}
{{- range $identity.oidc }}
{{- $issuers = append $issuers .issuer }}
{{- end }}
{{- range $name, $tenant := default dict $policy.tenants }}
{{- if and $tenant.ambient (not $tenant.sandbox) }}
{{- $problems = append $problems (printf "policy.tenants.%s.ambient requires policy.tenants.%s.sandbox" $name $name) }}
{{- end }}
{{- range $i, $member := default list $tenant.members }}
{{- $where := printf "policy.tenants.%s.members[%d]" $name $i }}
{{- if and $member.issuer (not (has $member.issuer $issuers)) }}
{{- $problems = append $problems (printf "%s.issuer is %q, which is not in policy.identity.oidc" $where $member.issuer) }}
{{- end }}
{{- if and (or $member.spiffe $member.dns) (not $identity.certificates) }}
{{- $problems = append $problems (printf "%s names a client certificate, which requires policy.identity.certificates" $where) }}
{{- end }}
{{- range $identity.proxies }}
{{- if or (and .spiffe (eq .spiffe (default "" $member.spiffe))) (and .dns (eq (lower .dns) (lower (default "" $member.dns)))) }}
{{- $problems = append $problems (printf "%s is a proxy of policy.identity.proxies: all its callers would have the member's role" $where) }}
{{- end }}
{{- end }}
{{- if and $member.token (not $identity.tokens) }}
{{- $problems = append $problems (printf "%s.token requires policy.identity.tokens, a file that volumes and volumeMounts provide" $where) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $problems }}
{{- end }}

{{- define "copilot-grpc.validate.cluster" -}}
{{- $v := .Values }}
{{- $problems := list }}
{{- if $v.cluster.enabled }}
{{- if and $v.cluster.nats.urls $v.nats.enabled }}
{{- $problems = append $problems "cluster.nats.urls and nats.enabled are both set: use your NATS servers, or let the chart install some" }}
{{- end }}
{{- if not (or $v.cluster.nats.urls $v.nats.enabled) }}
{{- $problems = append $problems "cluster.enabled requires cluster.nats.urls or nats.enabled" }}
{{- end }}
{{- if not $v.cluster.nats.secretName }}
{{- $problems = append $problems "cluster.nats.secretName is required with cluster.enabled: a secret with nats.creds and ca.crt" }}
{{- end }}
{{- if and $v.cluster.node.tls.secretName $v.cluster.node.tls.issuerRef.name }}
{{- $problems = append $problems "cluster.node.tls.secretName and cluster.node.tls.issuerRef are both set: use the secret, or let cert-manager make one" }}
{{- end }}
{{- if not (or $v.cluster.node.tls.secretName $v.cluster.node.tls.issuerRef.name) }}
{{- $problems = append $problems "cluster.node.tls.secretName or cluster.node.tls.issuerRef.name is required with cluster.enabled: replicas authenticate each other by certificates" }}
{{- end }}
{{- if and $v.cluster.node.tls.issuerRef.name (eq (toYaml $v.cluster.node.tls.issuerRef) (toYaml $v.tls.certManager.issuerRef)) }}
{{- $problems = append $problems "cluster.node.tls.issuerRef is the issuer of tls.certManager: a certificate of it would give every right of a replica. Use a CA that signs replicas only" }}
{{- end }}
{{- if $v.config.dial }}
{{- $problems = append $problems "config.dial cannot be used with cluster.enabled: the sessions of a CLI server that is not the replica's cannot move" }}
{{- end }}
{{- else if $v.nats.enabled }}
{{- $problems = append $problems "nats.enabled requires cluster.enabled" }}
{{- end }}
{{- if and $v.nats.enabled (not (and $v.nats.tlsSecretName $v.nats.accountsSecretName)) }}
{{- $problems = append $problems "nats.enabled requires nats.tlsSecretName and nats.accountsSecretName" }}
{{- end }}
{{- toYaml $problems }}
{{- end }}
