// Package bridgetest has the fixtures of tests that need a whole bridge: a bridge on a fake CLI, readers of its
// streams, and participants.
//
// New makes a Bridge, which embeds *bridge.Bridge, so that a test makes its calls as a server does. Options say what
// else there is: Restarts has the fake CLI started again when its process ends, Stored gives the bridge a data
// directory, after which Restart gives the bridge that comes after a crash.
//
//	b := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
//	b.Create("s1")
//	b.Ask("s1", "hello")
//	b = b.Restart()
//
// Everything that a fixture starts ends with the test. The methods fail the test if what they do fails; a test of an
// error calls the bridge itself. A fixture that several packages do not need belongs to the tests of its package.
//
// The package imports bridge: only external tests (package x_test) can use it below bridge.
package bridgetest
