// Pause is process 1: of every pod's sandbox, and of every emulated node.
//
// It keeps the namespaces alive and takes the exit status of processes whose parents are gone,
// which would otherwise stay as zombies. It ends when asked to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	for {
		reap()
		select {
		case <-children:
		case <-end:
			return
		}
	}
}

// reap collects every child that has ended; one signal may stand for many of them.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
