// Command connectsuite is the server that the Connect conformance suite tests: package server/web with the suite's
// service. The suite's runner starts it for each combination of HTTP version, protocol and TLS, writes a
// ServerCompatRequest to its standard input, reads a ServerCompatResponse from its standard output, calls the service,
// and ends the process with SIGTERM.
package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/copilot-grpc/copilot-grpc/internal/testing/connectsuite/gen/connectrpc/conformance/v1"
	"github.com/copilot-grpc/copilot-grpc/server/web"
)

const (
	maxRequestBytes = 1 << 20
	headerTimeout   = 10 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Stdin, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves as the request in in demands until ctx ends.
func run(ctx context.Context, in io.Reader, out io.Writer) error {
	request := &pb.ServerCompatRequest{}
	if err := read(in, request); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	handler, err := web.New(web.Config{
		Register:     func(r grpc.ServiceRegistrar) { pb.RegisterConformanceServiceServer(r, service{}) },
		Status:       plainStatus,
		Enter:        withQuery,
		MaxRecvBytes: int(request.GetMessageReceiveLimit()),
	})
	if err != nil {
		return err
	}
	server, err := newServer(handler, request)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	address := l.Addr().(*net.TCPAddr)
	reply := &pb.ServerCompatResponse{Host: address.IP.String(), Port: uint32(address.Port)} //nolint:gosec // 16 bits
	if request.GetUseTls() {
		reply.PemCert = request.GetServerCreds().GetCert()
	}
	err = write(out, reply)
	if err == nil {
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
	}
	err = errors.Join(err, server.Close())
	<-served
	handler.Wait()
	return err
}

// newServer returns the HTTP server for a request, with the HTTP versions of package server.
func newServer(handler http.Handler, request *pb.ServerCompatRequest) (*http.Server, error) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: &protocols, ReadHeaderTimeout: headerTimeout,
		ErrorLog: log.New(io.Discard, "", 0)}
	if request.GetUseTls() {
		pair, err := tls.X509KeyPair(request.GetServerCreds().GetCert(), request.GetServerCreds().GetKey())
		if err != nil {
			return nil, fmt.Errorf("the certificate: %w", err)
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return server, nil
}

// read reads a message behind its size in four bytes.
func read(in io.Reader, m proto.Message) error {
	var size uint32
	if err := binary.Read(in, binary.BigEndian, &size); err != nil {
		return err
	}
	if size > maxRequestBytes {
		return fmt.Errorf("a message of %d bytes is too large", size)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(in, data); err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// write writes a message behind its size in four bytes.
func write(out io.Writer, m proto.Message) error {
	data, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = out.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)) //nolint:gosec // small
	return err
}
