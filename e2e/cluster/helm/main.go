// Helm is the usual installer of charts, built from the same modules as the cluster.
package main

import (
	"log/slog"
	"os"

	"helm.sh/helm/v4/pkg/cmd"
)

func main() {
	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err != nil {
		slog.Error("helm cannot start", "error", err)
		os.Exit(1)
	}
	if root.Execute() != nil {
		// The command has said what is wrong.
		os.Exit(1)
	}
}
