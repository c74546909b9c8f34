// Package deepcall runs functions on the stacks of other goroutines.
//
// A goroutine's stack grows for its deepest call, in powers of two, and the collector halves it only while less than a
// quarter is in use. A goroutine that makes one deep call and then waits for long keeps twice or four times the stack
// that its wait needs. If it makes the deep call here, its own stack does not grow.
package deepcall

import (
	"fmt"
	"runtime/debug"
)

// Panic is the value of a panic in Do.
type Panic struct {
	// Value is the value of the function's own panic.
	Value any
	// Stack is the stack of the function at its panic.
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprint(p.Value) }

// Unwrap returns the value if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Do calls f on another goroutine, waits until it returns, and returns its error. If f panics, Do panics with a
// *Panic. It costs a new goroutine and two switches, so it is for calls that are rare. It is safe for concurrent use.
func Do(f func() error) error {
	done := make(chan result)
	go call(f, done)
	r := <-done
	if r.panic != nil {
		panic(r.panic)
	}
	return r.err
}

type result struct {
	err   error
	panic *Panic
}

// call sends the result also if f ends its goroutine, as a test that fails does.
func call(f func() error, done chan<- result) {
	var r result
	defer func() {
		if p := recover(); p != nil {
			r.panic = &Panic{Value: p, Stack: debug.Stack()}
		}
		done <- r
	}()
	r.err = f()
}
