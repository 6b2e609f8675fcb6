// Command cri speaks to a container runtime as a kubelet does, for tests.
//
// It promises one call of the runtime interface per run, its answer on standard output as one JSON
// object, and exit code 1 with the runtime's own words where that refused. It never retries and
// keeps nothing.
//
//	cri SOCKET status
//	cri SOCKET run-pod NAMESPACE NAME UID [KEY=VALUE...]
//	cri SOCKET pods
//	cri SOCKET run POD NAME IMAGE COMMAND [ARGUMENT...]
//	cri SOCKET exec CONTAINER COMMAND [ARGUMENT...]
//	cri SOCKET stop-pod POD
//	cri SOCKET remove-pod POD
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Longer than any call needs on a busy machine, so that a runtime that hangs ends the test.
const patience = 60 * time.Second

var errUsage = errors.New("usage: cri SOCKET status|run-pod|pods|run|exec|stop-pod|remove-pod ARGUMENT...")

// config is kept the same between the calls of a pod, as a kubelet keeps it.
func podConfig(namespace, name, uid string, labels map[string]string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Namespace: namespace, Name: name, Uid: uid},
		Labels:   labels,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: os.Getenv("CGROUP_PARENT"),
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined},
			},
		},
	}
}

type pod struct {
	ID        string   `json:"id"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	State     string   `json:"state"`
	Addresses []string `json:"addresses"`
	Netns     string   `json:"netns"`
}

// describe asks about one pod; the network namespace is in the runtime's verbose answer.
func describe(ctx context.Context, client cri.RuntimeServiceClient, id string) (*pod, error) {
	answer, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	status := answer.Status
	found := &pod{ID: id, Namespace: status.Metadata.Namespace, Name: status.Metadata.Name, State: status.State.String(), Addresses: []string{}}
	if status.Network != nil && status.Network.Ip != "" {
		found.Addresses = append(found.Addresses, status.Network.Ip)
		for _, more := range status.Network.AdditionalIps {
			found.Addresses = append(found.Addresses, more.Ip)
		}
	}
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(answer.Info["info"]), &info); err != nil {
		return nil, fmt.Errorf("the runtime's description of %s: %w", id, err)
	}
	for _, namespace := range info.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			found.Netns = namespace.Path
		}
	}
	return found, nil
}

func runPod(ctx context.Context, client cri.RuntimeServiceClient, arguments []string) (any, error) {
	if len(arguments) < 3 {
		return nil, errUsage
	}
	labels := map[string]string{}
	for _, pair := range arguments[3:] {
		key, value, _ := strings.Cut(pair, "=")
		labels[key] = value
	}
	answer, err := client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: podConfig(arguments[0], arguments[1], arguments[2], labels)})
	if err != nil {
		return nil, err
	}
	return describe(ctx, client, answer.PodSandboxId)
}

func runContainer(ctx context.Context, client cri.RuntimeServiceClient, arguments []string) (any, error) {
	if len(arguments) < 4 {
		return nil, errUsage
	}
	id := arguments[0]
	status, err := client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	metadata := status.Status.Metadata
	made, err := client.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: id,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: arguments[1]},
			Image:    &cri.ImageSpec{Image: arguments[2]},
			Command:  arguments[3:],
			Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
				Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined},
			}},
		},
		SandboxConfig: podConfig(metadata.Namespace, metadata.Name, metadata.Uid, status.Status.Labels),
	})
	if err != nil {
		return nil, err
	}
	if _, err := client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return nil, err
	}
	return map[string]string{"id": made.ContainerId}, nil
}

func call(ctx context.Context, client cri.RuntimeServiceClient, command string, arguments []string) (any, error) {
	one := func() (string, error) {
		if len(arguments) != 1 {
			return "", errUsage
		}
		return arguments[0], nil
	}
	done := map[string]bool{"done": true}
	switch command {
	case "status":
		answer, err := client.Status(ctx, &cri.StatusRequest{})
		if err != nil {
			return nil, err
		}
		conditions := map[string]any{}
		for _, condition := range answer.Status.Conditions {
			conditions[condition.Type] = map[string]any{"status": condition.Status, "message": condition.Message}
		}
		return conditions, nil
	case "run-pod":
		return runPod(ctx, client, arguments)
	case "pods":
		answer, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return nil, err
		}
		pods := []*pod{}
		for _, item := range answer.Items {
			found, err := describe(ctx, client, item.Id)
			if err != nil {
				return nil, err
			}
			pods = append(pods, found)
		}
		return map[string]any{"pods": pods}, nil
	case "run":
		return runContainer(ctx, client, arguments)
	case "exec":
		if len(arguments) < 2 {
			return nil, errUsage
		}
		answer, err := client.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: arguments[0], Cmd: arguments[1:], Timeout: 20})
		if err != nil {
			return nil, err
		}
		return map[string]any{"stdout": string(answer.Stdout), "stderr": string(answer.Stderr), "code": answer.ExitCode}, nil
	case "stop-pod":
		id, err := one()
		if err == nil {
			_, err = client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		}
		return done, err
	case "remove-pod":
		id, err := one()
		if err == nil {
			_, err = client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
		}
		return done, err
	default:
		return nil, errUsage
	}
}

func run() error {
	if len(os.Args) < 3 {
		return errUsage
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	answer, err := call(ctx, cri.NewRuntimeServiceClient(connection), os.Args[2], os.Args[3:])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}
