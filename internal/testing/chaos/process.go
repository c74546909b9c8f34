package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"math/rand/v2"

	"golang.org/x/net/http2"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// The environment that makes the program act as another one.
const (
	// serveEnv names a file with the plan and the directory of a server to be run.
	serveEnv = "COPILOT_GRPC_CHAOS_SERVE"
	// scriptEnv is what makes it a fake CLI.
	scriptEnv = "FAKECOPILOT_SCRIPT"
	oracleEnv = "FAKECOPILOT_ORACLE"
)

// otherwise returns the exit code and true if the program was started as a server of a schedule, or as its CLI.
func otherwise() (code int, ok bool) {
	if os.Getenv(scriptEnv) != "" {
		return fakecli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr), true
	}
	if path := os.Getenv(serveEnv); path != "" {
		if err := serve(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// serving is the configuration of a server of a schedule.
type serving struct {
	Plan Plan
	Dir  string
	CLI  string
}

// serve is the server.
func serve(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s serving
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	c := configure(s.Plan, s.Dir)
	c.CLIPath, c.NoInstall = s.CLI, true
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the schedule's process has ended
		stop()
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	a, err := app.New(ctx, c, app.WithLogger(log), restarts())
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// process is a server in a separate process, life after life.
type process struct {
	w      *world
	config app.Config
	path   string
	cmd    *exec.Cmd
	exited chan error
	log    *os.File
}

func newProcess(w *world) (*process, error) {
	p := &process{w: w, config: configure(w.plan, w.dir), path: filepath.Join(w.dir, "serving")}
	s := serving{Plan: w.plan, Dir: w.dir, CLI: w.plan.CLI}
	var err error
	if w.plan.real() {
		if w.model, err = newModel(w.ctx); err == nil {
			s.CLI, err = taped(w.dir, s.CLI)
		}
	} else {
		s.CLI, err = p.fake()
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(p.path, text, 0o600)
	}
	if err == nil {
		p.log, err = os.Create(filepath.Join(w.dir, "server.log"))
	}
	return p, err
}

// scripts is how many scripts there are: more than processes of the fake CLI in a schedule.
const scripts = 100

// fake makes a program that is the fake CLI. Each of its processes takes the next script.
func (p *process) fake() (path string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(p.w.dir, "scripts")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	for life := range scripts {
		text, err := json.Marshal(script(rand.New(rand.NewPCG(p.w.plan.Seed, 100+uint64(life))), life))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d", life)), text, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	// A separate program, since it must also print its version, without an environment.
	text := fmt.Sprintf(`#!/bin/sh
cd '%s' || exit
case " $* " in
*" --version "*) script=$(ls | head -n 1) ;;
*) script=taken && mv "$(ls | head -n 1)" taken ;;
esac
%s="$PWD/$script" %s='%s' exec '%s' "$@"
`, dir, scriptEnv, oracleEnv, p.oracle(), self)
	path = filepath.Join(p.w.dir, "copilot")
	return path, os.WriteFile(path, []byte(text), 0o700) //nolint:gosec // it is to be run
}

func (p *process) oracle() string { return filepath.Join(p.w.dir, "oracle.jsonl") }

// start begins a life of the server.
func (p *process) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), serveEnv+"="+p.path)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if _, err := p.cmd.StdinPipe(); err != nil { // it ends with us
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, exited chan error) { exited <- cmd.Wait() }(p.cmd, p.exited)
	return p.await()
}

// end waits for the server's end.
func (p *process) end() error {
	p.cmd = nil
	select {
	case err := <-p.exited:
		return err
	case <-time.After(callTimeout):
		return errors.New("the server does not end")
	}
}

// stop drains the server and ends it.
func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.end()
}

// await waits until the server listens: a signal to one that starts just ends it.
func (p *process) await() error {
	for range 3000 {
		if answers(filepath.Join(p.w.dir, "s")) {
			return nil
		}
		select {
		case <-p.w.ctx.Done():
			return context.Cause(p.w.ctx)
		case err := <-p.exited:
			p.cmd = nil
			return fmt.Errorf("the server ended while it started: %v", err)
		default:
			pause(p.w.ctx, 10*time.Millisecond)
		}
	}
	return errors.New("the server does not listen")
}

// answers reports whether a server speaks HTTP/2 on a socket. That one can connect is not enough:
// the child of a killed server that has not come to its exec yet keeps the socket open.
func answers(socket string) bool {
	probe, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	defer func() { _ = probe.Close() }()
	_ = probe.SetDeadline(time.Now().Add(time.Second))
	settings := make([]byte, frameHead) // of no settings, and of no length
	settings[3] = byte(http2.FrameSettings)
	if _, err := probe.Write(append([]byte(http2.ClientPreface), settings...)); err != nil {
		return false
	}
	_, err = io.ReadFull(probe, settings)
	return err == nil
}

// frameHead is how long a frame of HTTP/2 is without what it holds.
const frameHead = 9

// crash ends the server without its having a say.
func (p *process) crash() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = p.end() // it was killed
	return nil
}

// leakPatience is how long the CLI of an ended server may take to end.
const leakPatience = 10 * time.Second

// close ends everything and tells what was left behind.
func (p *process) close() error {
	err := p.stop()
	// The processes that it leaves behind have its directory in their environment.
	deadline := time.Now().Add(leakPatience)
	for left := p.children(); len(left) > 0; left = p.children() {
		if time.Now().After(deadline) {
			err = errors.Join(err, fmt.Errorf("processes of an ended server live: %v", left))
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if text, e := os.ReadFile(p.log.Name()); e == nil {
		for _, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
			p.w.rec.logf("server: %s", line)
		}
	}
	if p.w.model != nil {
		err = errors.Join(err, p.w.model.close())
	}
	return errors.Join(err, p.log.Close())
}

// children are the CLI processes of the schedule, by their homes.
func (p *process) children() (pids []int) {
	mark := []byte("COPILOT_HOME=" + p.config.Home)
	found, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is a good one
	for _, path := range found {
		env, err := os.ReadFile(path)
		if err != nil || !contains(env, mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// contains looks for a variable in an environment.
func contains(env, mark []byte) bool {
	for _, v := range bytes.Split(env, []byte{0}) {
		if bytes.Equal(v, mark) {
			return true
		}
	}
	return false
}

// signal sends a signal to the CLI.
func (p *process) signal(s syscall.Signal) {
	for _, pid := range p.children() {
		_ = syscall.Kill(pid, s) // it may have just ended
	}
}

// entries is the log of all fake CLIs so far, nil of real ones.
func (p *process) entries() ([]fakecli.Entry, error) { return fakecli.ReadLog(p.oracle()) }

// lives is how many CLIs there have been.
func (p *process) lives() int {
	all, _ := p.entries()
	n := 0
	for _, e := range all {
		if e.Kind == fakecli.EntryReceived && e.Type == "connect" {
			n++
		}
	}
	return n
}
