// Package controlplane is an xDS control plane for tests, by go-control-plane, and the resources that it serves. It is
// part of test programs with the tag xds.
package controlplane
