// Forward passes connections on: from the listening socket that it finds as standard input to the
// address in its argument.
//
// The socket belongs to the machine's network and the program runs in the control plane's, so that
// it joins two networks between which there is no route.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// Connections at once. A client beyond that waits in the socket's backlog.
const limit = 512

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: forward HOST:PORT <&LISTENING-SOCKET")
		os.Exit(2)
	}
	listener, err := net.FileListener(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "forward: standard input is no listening socket:", err)
		os.Exit(1)
	}
	free := make(chan struct{}, limit)
	for {
		free <- struct{}{}
		near, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "forward:", err)
			os.Exit(1)
		}
		go func() {
			defer func() { <-free }()
			pass(near, os.Args[1])
		}()
	}
}

func pass(near net.Conn, target string) {
	defer near.Close()
	far, err := net.Dial("tcp", target)
	if err != nil {
		fmt.Fprintln(os.Stderr, "forward:", err)
		return
	}
	defer far.Close()
	done := make(chan struct{}, 2)
	go oneWay(far, near, done)
	go oneWay(near, far, done)
	// An end of one direction is passed on, and the other may still have much to say.
	<-done
	<-done
}

func oneWay(to, from net.Conn, done chan<- struct{}) {
	defer func() { done <- struct{}{} }()
	_, err := io.Copy(to, from)
	half, ok := to.(*net.TCPConn)
	if err != nil || !ok || half.CloseWrite() != nil {
		to.Close()
	}
}
