// Package atstart applies the timer slack of a server when the program that imports it starts: before all packages that
// take long to initialize, because of its place in the alphabet. Only a main package imports it.
package atstart

import (
	"os"

	"github.com/copilot-grpc/copilot-grpc/internal/timerslack"
)

func init() { timerslack.Apply(os.Args) }
