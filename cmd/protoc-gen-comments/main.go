// Command protoc-gen-comments writes the comments of the .proto files as a Go package. It is a plugin of buf generate:
// see package comments.
package main

import (
	"google.golang.org/protobuf/compiler/protogen"

	"github.com/copilot-grpc/copilot-grpc/internal/gen/comments"
)

func main() { protogen.Options{}.Run(comments.Generate) }
