package runtime

import (
	"errors"
	"io"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The first caller of a profile whose CLI does not run yet hears that it is started, before anything else and once. The
// next caller does not have to wait, and hears nothing of it. The fixture has called the CLI of the default profile.
func TestFirstCallReportsProgress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call     func(r *harness.Fixture) ([]frame, error)
		progress bool
	}{
		"Run":           {runFrames, true},
		"Attach":        {func(r *harness.Fixture) ([]frame, error) { return attachFrames(r, false) }, true},
		"exact Attach":  {func(r *harness.Fixture) ([]frame, error) { return attachFrames(r, true) }, false},
		"Run after one": {func(r *harness.Fixture) ([]frame, error) { _, _ = runFrames(r); return runFrames(r) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frames, err := tc.call(harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{}))
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range frames {
				want := tc.progress && i == 0
				if got := f.GetProgress(); (got != nil) != want {
					t.Errorf("frame %d of %d is %v", i, len(frames), f)
				} else if want && (got.GetStage() != bridgev1.ProgressStage_PROGRESS_STAGE_STARTING_CLI || got.GetDetail() == "") {
					t.Errorf("progress = %v", got)
				}
			}
			if len(frames) < 2 {
				t.Errorf("only %d frames", len(frames))
			}
		})
	}
}

// frame is a frame of Run or Attach.
type frame interface{ GetProgress() *bridgev1.Progress }

// newProfile asks for a session that ends with its caller, in a profile that only it uses.
func newProfile(r *harness.Fixture) *bridgev1.CreateSessionRequest {
	return &bridgev1.CreateSessionRequest{
		Config: r.Options().Config, Lifetime: bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT,
		RuntimeProfile: &bridgev1.RuntimeProfile{MultiConnection: true},
	}
}

// runFrames makes a Run in a new session and returns its frames.
func runFrames(r *harness.Fixture) (frames []frame, err error) {
	stream, err := r.Client.Sessions().Run(r.Ctx, &bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_Create{Create: newProfile(r)},
		Prompt:  &bridgev1.Prompt{Text: "hello"},
	})
	if err != nil {
		return nil, err
	}
	for {
		f, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return nil, err
		}
		frames = append(frames, f)
	}
}

// attachFrames creates a session with Attach and returns the frames until the participant has left.
func attachFrames(r *harness.Fixture, exact bool) (frames []frame, err error) {
	stream, err := r.Client.Callbacks().Attach(r.Ctx)
	if err != nil {
		return nil, err
	}
	start := &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_Create{Create: newProfile(r)}, Exact: exact,
	}
	if err := stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: start}}); err != nil {
		return nil, err
	}
	for {
		f, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return nil, err
		}
		if frames = append(frames, f); f.GetStarted() != nil {
			if err := stream.CloseSend(); err != nil {
				return nil, err
			}
		}
	}
}
