package main

import (
	"context"
	"errors"
	"io"
)

func fetch(context.Context, []string, io.Writer) error { return errors.New("fetch") }
