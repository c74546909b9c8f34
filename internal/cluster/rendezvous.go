package cluster

import (
	"encoding/binary"
	"hash/fnv"
)

// winner returns which of the members takes a session, "" without members. All nodes that know the same members agree.
// When a member leaves, only its sessions get other winners, evenly among the rest (rendezvous hashing).
func winner(session string, members []string) (best string) {
	var most uint64
	for _, m := range members {
		if w := weight(session, m); best == "" || w > most || w == most && m < best {
			best, most = m, w
		}
	}
	return best
}

// weight is a hash of a session and a member.
func weight(session, member string) uint64 {
	h := fnv.New64a()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(session)))
	_, _ = h.Write(size[:]) // a hash never fails
	_, _ = h.Write([]byte(session))
	_, _ = h.Write([]byte(member))
	return mix(h.Sum64())
}

// mix spreads each bit over all others (the finalizer of SplitMix64): the end of an FNV hash depends too little on its
// last bytes.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
