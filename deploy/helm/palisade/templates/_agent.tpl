{{/* The pod of an agent: containers and volumes. Folders of the host are mounted under their own names, so
that paths which runtimes, plugin and agent tell each other mean the same for all of them. */}}
{{- define "palisade.agentPod" -}}
{{- if .Values.cni.install }}
initContainers:
  - name: install-cni
    image: {{ include "palisade.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [install-cni, --config, /etc/palisade/config/palisade.yaml]
    securityContext:
      capabilities:
        drop: [ALL]
      readOnlyRootFilesystem: true
      runAsUser: 0
      runAsGroup: 0
      {{- with .Values.securityContext.seLinuxOptions }}
      seLinuxOptions:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    volumeMounts:
      - name: configuration
        mountPath: /etc/palisade/config
        readOnly: true
      - name: state
        mountPath: {{ .Values.paths.state }}
      - name: cni-bin
        mountPath: {{ .Values.cni.binDir }}
{{- end }}
containers:
  - name: agent
    image: {{ include "palisade.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [agent, --config, /etc/palisade/config/palisade.yaml]
    env:
      # Of the node that this agent is for.
      - name: NODE_NAME
        valueFrom:
          fieldRef:
            fieldPath: spec.nodeName
      - name: HOST_IP
        valueFrom:
          fieldRef:
            fieldPath: status.hostIP
      - name: PALISADE_HEALTH_ADDRESS
        value: {{ printf "%s:%d" (include "palisade.healthHost" .) (int .Values.metrics.port) | quote }}
      # For `kubectl exec`: the commands find the agent.
      - name: PALISADE_SOCKET
        value: {{ .Values.paths.run }}/palisade.sock
      {{- with .Values.apiServer }}
      {{- if .host }}
      - name: KUBERNETES_SERVICE_HOST
        value: {{ .host | quote }}
      - name: KUBERNETES_SERVICE_PORT
        value: {{ .port | quote }}
      {{- end }}
      {{- end }}
    ports:
      - name: metrics
        containerPort: {{ .Values.metrics.port }}
        protocol: TCP
    startupProbe:
      {{- include "palisade.probe" (dict "context" . "path" "/healthz") | trim | nindent 6 }}
      periodSeconds: 2
      failureThreshold: {{ .Values.probes.startupFailures }}
    livenessProbe:
      {{- include "palisade.probe" (dict "context" . "path" "/healthz") | trim | nindent 6 }}
      periodSeconds: {{ .Values.probes.periodSeconds }}
      timeoutSeconds: {{ .Values.probes.timeoutSeconds }}
      failureThreshold: {{ .Values.probes.livenessFailures }}
    readinessProbe:
      {{- include "palisade.probe" (dict "context" . "path" "/readyz") | trim | nindent 6 }}
      periodSeconds: {{ .Values.probes.periodSeconds }}
      timeoutSeconds: {{ .Values.probes.timeoutSeconds }}
      failureThreshold: 1
    {{- with .Values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "palisade.securityContext" . | trim | nindent 6 }}
    volumeMounts:
      - name: configuration
        mountPath: /etc/palisade/config
        readOnly: true
      - name: state
        mountPath: {{ .Values.paths.state }}
      - name: run
        mountPath: {{ .Values.paths.run }}
      - name: cni-bin
        mountPath: {{ .Values.cni.binDir }}
        readOnly: true
      {{- if .Values.cni.writeConfiguration }}
      - name: cni-conf
        mountPath: {{ .Values.cni.confDir }}
      {{- end }}
      # Runtimes mount the namespaces of pods here while the agent runs.
      - name: netns
        mountPath: {{ .Values.paths.netns }}
        mountPropagation: HostToContainer
      # Pins of the fast path. Without `dataplane: ebpf` too: what an earlier agent pinned there is to be removed.
      - name: bpf
        mountPath: /sys/fs/bpf
        mountPropagation: HostToContainer
      {{- if not .Values.securityContext.privileged }}
      # /proc/sys cannot be written in a container that is not privileged; the agent looks for this one first.
      - name: sysctl-net
        mountPath: /host/proc/sys/net
      {{- end }}
      {{- with .Values.paths.policies }}
      - name: policies
        mountPath: /etc/palisade/policy
        readOnly: true
      {{- end }}
      {{- with .Values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- if .Values.dnsProxy.enabled }}
  # Of its own, so that DNS goes on while the agent is started anew. Replaced with its pod: see updateStrategy.
  - name: proxy
    image: {{ include "palisade.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [proxy, --config, /etc/palisade/config/palisade.yaml]
    {{- with .Values.dnsProxy.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "palisade.proxySecurityContext" . | trim | nindent 6 }}
    volumeMounts:
      - name: configuration
        mountPath: /etc/palisade/config
        readOnly: true
      # The rule sets.
      - name: state
        mountPath: {{ .Values.paths.state }}
        readOnly: true
      # The agent's socket for answers, and that of the handover.
      - name: run
        mountPath: {{ .Values.paths.run }}
      # In place of the token of the API server, which it never asks.
      - name: no-token
        mountPath: /var/run/secrets/kubernetes.io/serviceaccount
        readOnly: true
{{- end }}
volumes:
  {{- if .Values.dnsProxy.enabled }}
  - name: no-token
    emptyDir: {}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  - name: configuration
    configMap:
      name: {{ include "palisade.name" . }}
  - name: state
    hostPath:
      path: {{ .Values.paths.state }}
      type: DirectoryOrCreate
  - name: run
    hostPath:
      path: {{ .Values.paths.run }}
      type: DirectoryOrCreate
  - name: cni-bin
    hostPath:
      path: {{ .Values.cni.binDir }}
      type: DirectoryOrCreate
  {{- if .Values.cni.writeConfiguration }}
  - name: cni-conf
    hostPath:
      path: {{ .Values.cni.confDir }}
      type: DirectoryOrCreate
  {{- end }}
  - name: netns
    hostPath:
      path: {{ .Values.paths.netns }}
      type: DirectoryOrCreate
  - name: bpf
    hostPath:
      path: /sys/fs/bpf
  {{- if not .Values.securityContext.privileged }}
  - name: sysctl-net
    hostPath:
      path: /proc/sys/net
      type: Directory
  {{- end }}
  {{- with .Values.paths.policies }}
  - name: policies
    hostPath:
      path: {{ . }}
      type: Directory
  {{- end }}
{{- end }}
