// Package conformance runs the conformance tests of the Network Policy API for AdminNetworkPolicy and
// BaselineAdminNetworkPolicy, all of them: those of the experimental channel, too. It is upstream's own program but
// for its profiles.
package conformance

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	api "sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	timeouts "sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

func TestConformance(t *testing.T) {
	access, err := config.GetConfig()
	if err != nil {
		t.Fatalf("the kubeconfig: %v", err)
	}
	objects, err := client.New(access, client.Options{})
	if err != nil {
		t.Fatalf("the client of objects: %v", err)
	}
	calls, err := kubernetes.NewForConfig(access)
	if err != nil {
		t.Fatalf("the client of calls: %v", err)
	}
	if err := api.Install(objects.Scheme()); err != nil {
		t.Fatalf("the kinds: %v", err)
	}
	all := suite.New(suite.Options{
		Client:                     objects,
		ClientSet:                  calls,
		KubeConfig:                 *access,
		CleanupBaseResources:       true,
		EnableAllSupportedFeatures: true,
		// A test asks for its pods with one context, also after it has waited for connections that are denied,
		// three seconds each: the 20 s of the default are over before.
		TimeoutConfig: timeouts.TimeoutConfig{GetTimeout: 5 * time.Minute},
	})
	all.Setup(t)
	all.Run(t, tests.ConformanceTests)
}
