//go:build !linux

package fileperm

func readOnly(string) bool { return false }
