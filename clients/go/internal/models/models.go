// Package models makes the requests to models that the CLI hands to a program.
package models

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// piece is the most bytes of a response that are sent at once.
const piece = 32 << 10

// Requests makes the requests of a participant by the program's transport. It is safe for concurrent use.
type Requests struct {
	ctx       context.Context
	transport http.RoundTripper
	send      func(context.Context, *bridgev1.ModelResponse) error

	mu   sync.Mutex
	open map[string]*request // by id
}

// request is one of them.
type request struct {
	id     string
	body   *io.PipeWriter
	cancel context.CancelCauseFunc
}

// New returns requests that end with ctx. send sends a part of a response.
func New(
	ctx context.Context, transport http.RoundTripper, send func(context.Context, *bridgev1.ModelResponse) error,
) *Requests {
	return &Requests{ctx: ctx, transport: transport, send: send, open: make(map[string]*request)}
}

func (m *Requests) put(c *request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[c.id] = c
}

func (m *Requests) get(id string) *request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[id]
}

// End ends a request whose response is no longer needed.
func (m *Requests) End(id string, why error) {
	m.mu.Lock()
	c := m.open[id]
	delete(m.open, id)
	m.mu.Unlock()
	if c != nil {
		_ = c.body.CloseWithError(why) // never fails
		c.cancel(why)
	}
}

// errCancelled ends a request that the CLI has given up.
var errCancelled = errors.New("copilot: the request was cancelled")

// Start answers the callback that begins a request.
func (m *Requests) Start(
	_ context.Context, r *cliv1.CallbackLlmInferenceServiceHttpRequestStartRequest,
) (*cliv1.CallbackLlmInferenceServiceHttpRequestStartResponse, error) {
	if r.GetTransport() == webSocket {
		return nil, errors.New("copilot: ModelTransport makes no WebSocket connections")
	}
	return &cliv1.CallbackLlmInferenceServiceHttpRequestStartResponse{}, m.start(r)
}

// webSocket is a transport that Requests does not have.
const webSocket = cliv1.LlmInferenceHttpRequestStartTransport_LLM_INFERENCE_HTTP_REQUEST_START_TRANSPORT_WEBSOCKET

// Feed answers the callback with a piece of a request's body.
func (m *Requests) Feed(
	_ context.Context, r *cliv1.CallbackLlmInferenceServiceHttpRequestChunkRequest,
) (*cliv1.CallbackLlmInferenceServiceHttpRequestChunkResponse, error) {
	return &cliv1.CallbackLlmInferenceServiceHttpRequestChunkResponse{}, m.feed(r)
}

// start begins to make a request.
func (m *Requests) start(r *cliv1.CallbackLlmInferenceServiceHttpRequestStartRequest) error {
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancelCause(m.ctx)
	req, err := http.NewRequestWithContext(ctx, r.GetMethod(), r.GetUrl(), reader)
	if err != nil {
		cancel(err)
		return err
	}
	for name, values := range r.GetHeaders() {
		for _, value := range values.GetItems() {
			req.Header.Add(name, value)
		}
	}
	c := &request{id: r.GetRequestId(), body: writer, cancel: cancel}
	m.put(c)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the transport panicked: %v", v)
			}
			if err != nil && ctx.Err() == nil {
				_ = m.part(ctx, c.id,
					&bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Chunk{Chunk: &bridgev1.ModelResponseChunk{
						Error: &bridgev1.ModelResponseError{Message: err.Error()},
					}}}) // a failure here has no receiver
			}
			_ = reader.Close() // never fails
			m.End(c.id, errCancelled)
		}()
		err = m.answer(ctx, c, req)
	}()
	return nil
}

// feed takes a piece of a request's body.
func (m *Requests) feed(r *cliv1.CallbackLlmInferenceServiceHttpRequestChunkRequest) error {
	c := m.get(r.GetRequestId())
	if c == nil {
		return nil // its response is over
	}
	if r.GetCancel() {
		m.End(c.id, errCancelled)
		return nil
	}
	data := []byte(r.GetData())
	if r.GetBinary() {
		var err error
		if data, err = base64.StdEncoding.DecodeString(r.GetData()); err != nil {
			return err
		}
	}
	// It fails when the response came without the whole body being read, which is no
	// matter.
	if _, err := c.body.Write(data); err == nil && r.GetEnd() {
		_ = c.body.Close() // never fails
	}
	return nil
}

// answer makes a request and sends its response on.
func (m *Requests) answer(ctx context.Context, c *request, req *http.Request) error {
	resp, err := m.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end, or of no more use
	head := &bridgev1.ModelResponseHead{Status: int32(resp.StatusCode), StatusText: http.StatusText(resp.StatusCode),
		Headers: map[string]*cliv1.StringList{}}
	for name, values := range resp.Header {
		head.Headers[name] = &cliv1.StringList{Items: values}
	}
	if err := m.part(ctx, c.id, &bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Head{Head: head}}); err != nil {
		return err
	}
	buffer := make([]byte, piece)
	for {
		n, err := resp.Body.Read(buffer)
		over := errors.Is(err, io.EOF)
		if err != nil && !over {
			return err
		}
		if n == 0 && !over {
			continue
		}
		chunk := &bridgev1.ModelResponseChunk{Data: &bridgev1.ModelResponseChunk_Binary{Binary: buffer[:n]}, End: over}
		if err := m.part(ctx, c.id,
			&bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Chunk{Chunk: chunk}}); err != nil || over {
			return err
		}
	}
}

// part sends a part of a request's response.
func (m *Requests) part(ctx context.Context, id string, part *bridgev1.ModelResponse) error {
	part.RequestId = id
	return m.send(ctx, part)
}
