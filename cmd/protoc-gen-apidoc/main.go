// Command protoc-gen-apidoc writes docs/reference from the .proto files. It is a
// plugin of buf generate, and of protoc: see package apidoc.
package main

import (
	"google.golang.org/protobuf/compiler/protogen"

	"github.com/copilot-grpc/copilot-grpc/internal/gen/apidoc"
)

func main() { protogen.Options{}.Run(apidoc.Generate) }
