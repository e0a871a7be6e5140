// Kubebox holds all daemons of the cluster in one program; its first argument says which to be.
//
// Linked together they share client-go, gRPC and the API types: one link instead of seven, and a
// quarter of the disk. All of it is initialised at every start (0.3 s), which a daemon does not
// notice and a command line would: kubectl is a program of its own.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	// Time zones for CronJobs: a node has no database of them.
	_ "time/tzdata"

	"github.com/coredns/coredns/coremain"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// What the daemons' own main packages bring: log formats and metrics of the client.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	// A directive of the Corefile exists only if its plugin is imported.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// kubernetes makes a daemon of a command that Kubernetes offers as a library.
func kubernetes(command func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(command())) }
}

var daemons = map[string]func(){
	"coredns":                 coremain.Run,
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          kubernetes(apiserver.NewAPIServerCommand),
	"kube-controller-manager": kubernetes(manager.NewControllerManagerCommand),
	"kube-proxy":              kubernetes(proxy.NewProxyCommand),
	"kube-scheduler": kubernetes(func() *cobra.Command {
		return scheduler.NewSchedulerCommand()
	}),
	"kubelet": kubernetes(func() *cobra.Command {
		return kubelet.NewKubeletCommand(context.Background())
	}),
}

func main() {
	if len(os.Args) > 1 {
		if daemon, known := daemons[os.Args[1]]; known {
			// The daemon reads its own arguments from here.
			os.Args = os.Args[1:]
			daemon()
			return
		}
	}
	names := slices.Sorted(maps.Keys(daemons))
	fmt.Fprintf(os.Stderr, "usage: kubebox %s [ARGUMENT..]\n", strings.Join(names, "|"))
	os.Exit(2)
}
