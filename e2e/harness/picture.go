package harness

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"

	"google.golang.org/protobuf/proto"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// Picture is a small image.
func Picture(t *testing.T) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 4, 4))
	for i := range 16 {
		img.Set(i%4, i/4, color.RGBA{R: uint8(16 * i), G: 100, B: 200, A: 255})
	}
	var buf bytes.Buffer
	if err := png.Encode(&buf, img); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Seeing gives the model eyes.
func Seeing(c *cliv1.SessionConfig) {
	c.ModelCapabilities = &cliv1.ModelCapabilitiesOverride{
		Supports: &cliv1.ModelCapabilitiesOverrideSupports{Vision: proto.Bool(true)},
	}
}

// WantImage checks that exactly this image came to the model.
func (r *Fixture) WantImage(want []byte) {
	r.T.Helper()
	var images []offlinemodel.Image
	for _, m := range r.LastModelRequest().Messages {
		images = append(images, m.Images...)
	}
	if len(images) != 1 || images[0].MediaType != "image/png" || !bytes.Equal(images[0].Data, want) {
		r.T.Errorf("the model got %d images, want one of %d bytes: %v", len(images), len(want), images)
	}
}
