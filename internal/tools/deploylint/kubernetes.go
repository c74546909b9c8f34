package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// cluster is what the manifests describe.
type cluster struct {
	problems []string

	maps     map[string]*corev1.ConfigMap
	set      *appsv1.StatefulSet
	services []*corev1.Service
	budget   *policyv1.PodDisruptionBudget
	networks *networkingv1.NetworkPolicy
}

func (c *cluster) say(format string, args ...any) {
	c.problems = append(c.problems, "manifests: "+fmt.Sprintf(format, args...))
}

// manifests returns what is wrong with a folder of them.
func manifests(dir string) []string {
	c := &cluster{maps: map[string]*corev1.ConfigMap{}}
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return []string{fmt.Sprintf("%s: no manifest (%v)", dir, err)}
	}
	for _, path := range paths {
		c.read(path)
	}
	if len(c.problems) == 0 {
		c.check()
	}
	return c.problems
}

// rendered returns what is wrong with a file that Helm rendered.
func rendered(path string) []string {
	c := &cluster{maps: map[string]*corev1.ConfigMap{}}
	c.read(path)
	if len(c.problems) == 0 {
		c.check()
	}
	return c.problems
}

// read reads the manifests of a file.
func (c *cluster) read(path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		c.say("%v", err)
	}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if err := c.take(document); err != nil {
			c.say("%s: %v", path, err)
		}
	}
}

// take reads a manifest.
func (c *cluster) take(text []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return err
	}
	var into any
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ConfigMap":
		m := &corev1.ConfigMap{}
		defer func() { c.maps[m.Name] = m }()
		into = m
	case "apps/v1 StatefulSet":
		c.set = &appsv1.StatefulSet{}
		into = c.set
	case "v1 Service":
		m := &corev1.Service{}
		c.services = append(c.services, m)
		into = m
	case "policy/v1 PodDisruptionBudget":
		c.budget = &policyv1.PodDisruptionBudget{}
		into = c.budget
	case "networking.k8s.io/v1 NetworkPolicy":
		c.networks = &networkingv1.NetworkPolicy{}
		into = c.networks
	case "autoscaling/v2 HorizontalPodAutoscaler":
		into = &autoscalingv2.HorizontalPodAutoscaler{}
	case "v1 ServiceAccount":
		into = &corev1.ServiceAccount{}
	case "cert-manager.io/v1 Certificate":
		into = &certmanagerv1.Certificate{}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		into = &monitoringv1.ServiceMonitor{}
	default:
		return fmt.Errorf("%s %s is not expected here", kind.APIVersion, kind.Kind)
	}
	return yaml.UnmarshalStrict(text, into)
}

// check looks at how the parts fit together.
func (c *cluster) check() {
	if c.set == nil || len(c.services) == 0 || c.budget == nil || c.networks == nil {
		c.say("one of StatefulSet, Service, PodDisruptionBudget and NetworkPolicy is missing")
		return
	}
	labels := c.set.Spec.Template.Labels
	for what, selector := range map[string]map[string]string{
		"StatefulSet":         c.set.Spec.Selector.MatchLabels,
		"PodDisruptionBudget": c.budget.Spec.Selector.MatchLabels, "NetworkPolicy": c.networks.Spec.PodSelector.MatchLabels,
	} {
		if !selects(selector, labels) {
			c.say("the %s selects %v, the pods have %v", what, selector, labels)
		}
	}
	headless := false
	for _, s := range c.services {
		if !selects(s.Spec.Selector, labels) {
			c.say("the Service selects %v, the pods have %v", s.Spec.Selector, labels)
		}
		headless = headless || s.Name == c.set.Spec.ServiceName && s.Spec.ClusterIP == corev1.ClusterIPNone
	}
	if several := c.set.Spec.Replicas == nil || *c.set.Spec.Replicas > 1; several && !headless {
		c.say("the StatefulSet's service %q is not the headless one", c.set.Spec.ServiceName)
	}
	if len(c.set.Spec.Template.Spec.Containers) != 1 {
		c.say("%d containers, not 1", len(c.set.Spec.Template.Spec.Containers))
		return
	}
	c.checkContainer(&c.set.Spec.Template.Spec.Containers[0])
	c.checkVolumes(&c.set.Spec.Template.Spec.Containers[0])
	c.checkPorts(&c.set.Spec.Template.Spec.Containers[0])
}

// selects tells whether a selector, which must not be empty, matches labels.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

func (c *cluster) checkContainer(one *corev1.Container) {
	pod := c.set.Spec.Template.Spec
	is := func(b *bool) bool { return b != nil && *b }
	s := one.SecurityContext
	if pod.SecurityContext == nil || !is(pod.SecurityContext.RunAsNonRoot) || s == nil || !is(s.ReadOnlyRootFilesystem) ||
		s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
		c.say("the container has more rights than it needs")
	}
	if one.ReadinessProbe == nil || one.LivenessProbe == nil || one.StartupProbe == nil {
		c.say("a probe is missing")
	}
	if one.Lifecycle == nil || one.Lifecycle.PreStop == nil {
		c.say("there is no preStop")
	}
	if grace := pod.TerminationGracePeriodSeconds; grace == nil || *grace < 60 {
		c.say("the pod is not given the time to drain")
	}
	if is(pod.AutomountServiceAccountToken) || pod.AutomountServiceAccountToken == nil || is(pod.EnableServiceLinks) || pod.EnableServiceLinks == nil {
		c.say("the pod is given a token of the cluster, or variables of its services")
	}
}

// checkVolumes wants a volume for each mount, and a mount for each volume.
func (c *cluster) checkVolumes(one *corev1.Container) {
	pod := c.set.Spec.Template.Spec
	there := map[string]bool{}
	for _, v := range pod.Volumes {
		there[v.Name] = true
		if v.ConfigMap != nil && c.maps[v.ConfigMap.Name] == nil {
			c.say("there is no ConfigMap %q", v.ConfigMap.Name)
		}
	}
	for _, v := range c.set.Spec.VolumeClaimTemplates {
		there[v.Name] = true
	}
	for _, m := range one.VolumeMounts {
		if !there[m.Name] {
			c.say("%s: there is no volume %q", m.MountPath, m.Name)
		}
		delete(there, m.Name)
	}
	for name := range there {
		c.say("the volume %q is not mounted", name)
	}
}

// checkPorts wants the port of the container behind the service, and let in.
func (c *cluster) checkPorts(one *corev1.Container) {
	names := map[string]bool{}
	for _, p := range one.Ports {
		names[p.Name] = true
	}
	for _, s := range c.services {
		for _, p := range s.Spec.Ports {
			if !names[p.TargetPort.StrVal] {
				c.say("the service's port %q leads nowhere", p.TargetPort.StrVal)
			}
		}
	}

	for _, rule := range c.networks.Spec.Ingress {
		for _, p := range rule.Ports {
			if p.Port == nil || !names[p.Port.StrVal] {
				c.say("the network policy lets in to a port that there is not")
			}
		}
		if len(rule.From) == 0 {
			c.say("the network policy lets everybody in")
		}
	}
}
