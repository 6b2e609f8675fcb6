{{/* The pod that takes Palisade off its node, and stays when nothing is left. It sees the folders that
contain those of the agent, so that it can remove them. */}}
{{- define "palisade.cleanupPod" -}}
initContainers:
  - name: cleanup
    image: {{ include "palisade.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [cleanup, --yes, --config, /etc/palisade/config/palisade.yaml]
    securityContext:
      {{- include "palisade.securityContext" . | trim | nindent 6 }}
    volumeMounts:
      {{- include "palisade.cleanupMounts" . | trim | nindent 6 }}
containers:
  - name: uninstall-check
    image: {{ include "palisade.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    # Ends with an error, and is started again, while something is left.
    args: [uninstall-check, --stay, --config, /etc/palisade/config/palisade.yaml]
    securityContext:
      {{- include "palisade.securityContext" . | trim | nindent 6 }}
    volumeMounts:
      {{- include "palisade.cleanupMounts" . | trim | nindent 6 }}
volumes:
  - name: configuration
    configMap:
      name: {{ include "palisade.name" . }}
  - name: state-parent
    hostPath:
      path: {{ dir .Values.paths.state }}
      type: DirectoryOrCreate
  - name: run-parent
    hostPath:
      path: {{ dir .Values.paths.run }}
      type: DirectoryOrCreate
  - name: cni-bin
    hostPath:
      path: {{ .Values.cni.binDir }}
      type: DirectoryOrCreate
  - name: cni-conf
    hostPath:
      path: {{ .Values.cni.confDir }}
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
{{- end }}

{{- define "palisade.cleanupMounts" -}}
- name: configuration
  mountPath: /etc/palisade/config
  readOnly: true
- name: state-parent
  mountPath: {{ dir .Values.paths.state }}
- name: run-parent
  mountPath: {{ dir .Values.paths.run }}
- name: cni-bin
  mountPath: {{ .Values.cni.binDir }}
- name: cni-conf
  mountPath: {{ .Values.cni.confDir }}
- name: bpf
  mountPath: /sys/fs/bpf
  mountPropagation: HostToContainer
{{- if not .Values.securityContext.privileged }}
- name: sysctl-net
  mountPath: /host/proc/sys/net
{{- end }}
{{- end }}
