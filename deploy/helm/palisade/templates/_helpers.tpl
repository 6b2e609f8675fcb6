{{/* Names are fixed: two installations on one node would contend for the same kernel state. */}}
{{- define "palisade.name" -}}palisade{{- end }}

{{- define "palisade.selectorLabels" -}}
app.kubernetes.io/name: palisade
app.kubernetes.io/component: agent
{{- end }}

{{- define "palisade.labels" -}}
app.kubernetes.io/name: palisade
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "palisade.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{- define "palisade.serviceAccount" -}}
{{ .Values.serviceAccount.name | default "palisade" }}
{{- end }}

{{/* The configuration file of the agent: what the chart itself decides, then `config`. */}}
{{- define "palisade.configuration" -}}
kubernetes: in-cluster
state-dir: {{ .Values.paths.state | toJson }}
socket: {{ printf "%s/palisade.sock" .Values.paths.run | toJson }}
cni-bin-dir: {{ .Values.cni.binDir | toJson }}
cni-conf-dir: {{ ternary .Values.cni.confDir "" .Values.cni.writeConfiguration | toJson }}
cni-conf-name: {{ .Values.cni.confName | toJson }}
cni-conf-keep: {{ .Values.cni.keepConfiguration }}
dns-proxy: {{ ternary "on" "off" .Values.dnsProxy.enabled | toJson }}
{{- range $name, $value := .Values.config }}
{{- if kindIs "invalid" $value }}
{{- else if kindIs "float64" $value }}
{{ $name }}: {{ int64 $value }}
{{- else }}
{{ $name }}: {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* The address of metrics and probes, in which Kubernetes replaces HOST_IP. */}}
{{- define "palisade.healthHost" -}}
{{ ternary .Values.metrics.address "127.0.0.1" .Values.metrics.enabled }}
{{- end }}

{{/* A probe. A policy of pods applies neither to the node's loopback interface nor to what the node sends itself. */}}
{{- define "palisade.probe" -}}
httpGet:
  {{- if eq (include "palisade.healthHost" .context) "127.0.0.1" }}
  host: 127.0.0.1
  {{- end }}
  path: {{ .path }}
  port: metrics
{{- end }}

{{/* What both the agent's pods and those of the removal are. */}}
{{- define "palisade.podPlacement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
hostNetwork: true
hostPID: {{ .Values.hostPID }}
dnsPolicy: Default
priorityClassName: {{ .Values.priorityClassName }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
{{- end }}

{{/* The rights of the agent: those of packaging/palisade.service, and no others. */}}
{{- define "palisade.securityContext" -}}
{{- if .Values.securityContext.privileged }}
privileged: true
{{- else }}
capabilities:
  drop: [ALL]
  # NET_ADMIN: the packet filter, interfaces, routes, connection tracking, packet reports, forwarding.
  # SYS_ADMIN: to enter the namespaces of pods. SYS_PTRACE: where they are named by /proc/PID/ns/net.
  # CHOWN: to give the socket to a group. DAC_READ_SEARCH, LEASE: files that root does not own.
  add: [NET_ADMIN, SYS_ADMIN, SYS_PTRACE, CHOWN, DAC_READ_SEARCH, LEASE]
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- include "palisade.containerUser" . | trim | nindent 0 }}
{{- end }}

{{/* The rights of the DNS proxy: those of packaging/palisade-proxy.service, and no others. */}}
{{- define "palisade.proxySecurityContext" -}}
{{- if .Values.securityContext.privileged }}
privileged: true
{{- else }}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  # NET_ADMIN: marks of packets, buffers of sockets, packets to any address. NET_RAW: answers from the address of
  # the server that was asked.
  add: [NET_ADMIN, NET_RAW]
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- include "palisade.containerUser" . | trim | nindent 0 }}
{{- end }}

{{- define "palisade.containerUser" -}}
readOnlyRootFilesystem: true
runAsUser: 0
runAsGroup: 0
{{- with .Values.securityContext.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
