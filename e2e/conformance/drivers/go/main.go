// Command go is the conformance suite's driver of clients/go. It uses only the package's public API.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protodelim"

	conformancev1 "github.com/copilot-grpc/copilot-grpc/e2e/conformance/conformancev1"
)

func main() {
	in := bufio.NewReader(os.Stdin)
	for {
		request := &conformancev1.Request{}
		err := protodelim.UnmarshalFrom(in, request)
		if err == io.EOF {
			return
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "driver:", err)
			os.Exit(1)
		}
		r := newRunner(func(name string) {
			control := &conformancev1.Control{Name: name}
			write(&conformancev1.Response{Message: &conformancev1.Response_Control{Control: control}})
			_ = protodelim.UnmarshalFrom(in, request) // Proceed; the end of the input shows at the next read
		})
		result := r.run(request.GetCase())
		write(&conformancev1.Response{Message: &conformancev1.Response_Result{Result: result}})
	}
}

func write(response *conformancev1.Response) {
	if _, err := protodelim.MarshalTo(os.Stdout, response); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}
