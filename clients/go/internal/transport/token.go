package transport

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TokenSource returns the current bearer token. It may be called concurrently.
type TokenSource func(ctx context.Context) (string, error)

// FileToken returns the content of a file, without surrounding space. It reads the file
// again when the file has changed.
func FileToken(path string) TokenSource {
	f := &tokenFile{path: path}
	return f.token
}

type tokenFile struct {
	path string

	mu   sync.Mutex
	text string
	read os.FileInfo
}

func (f *tokenFile) token(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return "", fmt.Errorf("copilot: read the token: %w", err)
	}
	if f.text != "" && os.SameFile(f.read, info) && info.ModTime().Equal(f.read.ModTime()) &&
		info.Size() == f.read.Size() {
		return f.text, nil
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return "", fmt.Errorf("copilot: read the token: %w", err)
	}
	f.read, f.text = info, strings.TrimSpace(string(data))
	if f.text == "" {
		return "", fmt.Errorf("copilot: read the token: the file %q is empty", f.path)
	}
	return f.text, nil
}

// Bearer sends a token with every call.
type Bearer struct {
	Source TokenSource
	// Plain permits connections without TLS.
	Plain bool
}

// ReplacedTokenError is the server's rejection of a token that was replaced meanwhile.
type ReplacedTokenError struct{ error }

// Unwrap returns the server's error.
func (e ReplacedTokenError) Unwrap() error { return e.error }

// DialOptions returns the options that send the token, repeat a unary call once whose token was
// replaced, and mark the rejection of such a token in a stream.
func (b Bearer) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithPerRPCCredentials(b),
		grpc.WithChainUnaryInterceptor(b.unary), grpc.WithChainStreamInterceptor(b.stream),
	}
}

// sentToken is the key of a call's token in its context.
type sentToken struct{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b Bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, ok := ctx.Value(sentToken{}).(string)
	if !ok {
		var err error
		if token, err = b.Source(ctx); err != nil {
			return nil, status.Error(codes.Unauthenticated, err.Error())
		}
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b Bearer) RequireTransportSecurity() bool { return !b.Plain }

// begin takes the token for a call, so that expired can compare it.
func (b Bearer) begin(ctx context.Context) (context.Context, string, error) {
	token, err := b.Source(ctx)
	if err != nil {
		return ctx, "", status.Error(codes.Unauthenticated, err.Error())
	}
	return context.WithValue(ctx, sentToken{}, token), token, nil
}

// expired marks the rejection of a token that was replaced meanwhile.
func (b Bearer) expired(ctx context.Context, sent string, err error) error {
	if status.Code(err) != codes.Unauthenticated {
		return err
	}
	if current, failed := b.Source(ctx); failed != nil || current == sent {
		return err
	}
	return ReplacedTokenError{err}
}

func (b Bearer) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	call := func() (string, error) {
		ctx, sent, err := b.begin(ctx)
		if err == nil {
			err = invoker(ctx, method, req, reply, cc, opts...)
		}
		return sent, err
	}
	sent, err := call()
	if b.expired(ctx, sent, err) != err {
		_, err = call() // a rejected call has done nothing
	}
	return err
}

func (b Bearer) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, sent, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, b.expired(ctx, sent, err)
	}
	return &bearerStream{ClientStream: stream, bearer: b, sent: sent}, nil
}

// bearerStream is a stream that was opened with a token.
type bearerStream struct {
	grpc.ClientStream
	bearer Bearer
	sent   string
}

// RecvMsg implements grpc.ClientStream.
func (s *bearerStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		return nil
	}
	return s.bearer.expired(s.Context(), s.sent, err)
}
