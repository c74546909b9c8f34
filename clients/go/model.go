package copilot

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

// modelPiece is the most bytes of a response that are sent at once.
const modelPiece = 32 << 10

// models makes the requests to models that a participant answers, by the program's transport.
type models struct {
	ctx       context.Context // of the participation
	transport http.RoundTripper
	live      func(context.Context) (*link, error)

	mu   sync.Mutex
	open map[string]*modelCall // by id
}

// modelCall is one of them.
type modelCall struct {
	id     string
	body   *io.PipeWriter
	cancel context.CancelCauseFunc
}

func (m *models) put(c *modelCall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[c.id] = c
}

func (m *models) get(id string) *modelCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[id]
}

// end ends a request whose response is no longer needed.
func (m *models) end(id string, why error) {
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

// handlers answer the callbacks of requests to models.
func (m *models) handlers() []Handler {
	return []Handler{
		Handle(func(_ context.Context,
			r *cliv1.CallbackLlmInferenceServiceHttpRequestStartRequest) (*cliv1.CallbackLlmInferenceServiceHttpRequestStartResponse, error) {
			if r.GetTransport() == cliv1.LlmInferenceHttpRequestStartTransport_LLM_INFERENCE_HTTP_REQUEST_START_TRANSPORT_WEBSOCKET {
				return nil, errors.New("copilot: ModelTransport makes no WebSocket connections")
			}
			return &cliv1.CallbackLlmInferenceServiceHttpRequestStartResponse{}, m.start(r)
		}),
		Handle(func(_ context.Context,
			r *cliv1.CallbackLlmInferenceServiceHttpRequestChunkRequest) (*cliv1.CallbackLlmInferenceServiceHttpRequestChunkResponse, error) {
			return &cliv1.CallbackLlmInferenceServiceHttpRequestChunkResponse{}, m.feed(r)
		}),
	}
}

// start begins to make a request.
func (m *models) start(r *cliv1.CallbackLlmInferenceServiceHttpRequestStartRequest) error {
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
	c := &modelCall{id: r.GetRequestId(), body: writer, cancel: cancel}
	m.put(c)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the transport panicked: %v", v)
			}
			if err != nil && ctx.Err() == nil {
				_ = m.send(ctx, c.id,
					&bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Chunk{Chunk: &bridgev1.ModelResponseChunk{
						Error: &bridgev1.ModelResponseError{Message: err.Error()},
					}}}) // a failure here has no receiver
			}
			_ = reader.Close() // never fails
			m.end(c.id, errCancelled)
		}()
		err = m.answer(ctx, c, req)
	}()
	return nil
}

// feed takes a piece of a request's body.
func (m *models) feed(r *cliv1.CallbackLlmInferenceServiceHttpRequestChunkRequest) error {
	c := m.get(r.GetRequestId())
	if c == nil {
		return nil // its response is over
	}
	if r.GetCancel() {
		m.end(c.id, errCancelled)
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
func (m *models) answer(ctx context.Context, c *modelCall, req *http.Request) error {
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
	if err := m.send(ctx, c.id, &bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Head{Head: head}}); err != nil {
		return err
	}
	buffer := make([]byte, modelPiece)
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
		if err := m.send(ctx, c.id,
			&bridgev1.ModelResponse{Part: &bridgev1.ModelResponse_Chunk{Chunk: chunk}}); err != nil || over {
			return err
		}
	}
}

// send sends a part of a response. If the link breaks, the server ends the response.
func (m *models) send(ctx context.Context, id string, part *bridgev1.ModelResponse) error {
	l, err := m.live(ctx)
	if err != nil {
		return err
	}
	part.RequestId = id
	return l.send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_ModelResponse{ModelResponse: part}})
}
