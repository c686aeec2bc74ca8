{{- define "interfere.labels" -}}
app.kubernetes.io/name: interfere
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- define "interfere.selector" -}}
app.kubernetes.io/name: interfere
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- define "interfere.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "interfere.server" -}}
{{- if and .Values.server.enabled .Values.server.database.address -}}
dns:///{{ .Release.Name }}-servers.{{ .Release.Namespace }}.svc:50051
{{- else if .Values.server.enabled -}}
{{ .Release.Name }}-server.{{ .Release.Namespace }}.svc:50051
{{- else -}}
{{ required "server.address is needed where server.enabled is false" .Values.server.address }}
{{- end -}}
{{- end }}
{{- define "interfere.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "interfere.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}
{{- define "interfere.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if .root.Values.affinity }}
affinity: {{ toYaml .root.Values.affinity | nindent 2 }}
{{- else if .component }}
affinity:              # one lost node takes one replica
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "interfere.selector" . | nindent 14 }}
{{- end }}
{{- end }}
{{- define "interfere.marksSecret" -}}
{{- if .Values.certManager.enabled }}{{ .Release.Name }}-marks-tls{{ else }}{{ .Values.controller.tlsSecret }}{{ end }}
{{- end }}
{{- define "interfere.tokenVolume" -}}
# The kubelet renews the file; it is read again for each call.
- name: server-token
  projected:
    sources:
      - serviceAccountToken: {path: token, audience: {{ .Values.server.identity.audience | quote }}, expirationSeconds: 3600}
{{- end }}
