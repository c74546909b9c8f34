// Command protoc-gen-apidoc writes the reference from the .proto files. It is a
// plugin of buf generate, and of protoc: see package apidoc.
package main

import (
	"flag"

	"google.golang.org/protobuf/compiler/protogen"

	"github.com/copilot-grpc/copilot-grpc/internal/gen/apidoc"
)

func main() {
	var o apidoc.Options
	var parameters flag.FlagSet
	parameters.StringVar(&o.Package, "package", "", "the only package to document")
	parameters.StringVar(&o.Source, "source", "", "path of the .proto files from the output directory")
	protogen.Options{ParamFunc: parameters.Set}.Run(func(p *protogen.Plugin) error { return o.Generate(p) })
}
