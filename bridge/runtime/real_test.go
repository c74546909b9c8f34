//go:build unix

package runtime

func removeRealCache() {}
