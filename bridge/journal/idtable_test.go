package journal

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"
)

// The table is a map, for ids that are random and for ids that are counted in either half.
func TestIDTable(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for name, id := range map[string]func(n uint64) ID{
		"random": func(n uint64) ID {
			var k ID
			binary.BigEndian.PutUint64(k[:8], n*0x9e3779b97f4a7c15)
			binary.BigEndian.PutUint64(k[8:], ^n*0xc2b2ae3d27d4eb4f)
			return k
		},
		"first half":  func(n uint64) ID { var k ID; binary.BigEndian.PutUint64(k[:8], n+1); return k },
		"second half": func(n uint64) ID { var k ID; binary.LittleEndian.PutUint64(k[8:], n+1); return k },
	} {
		var table idTable[uint64]
		want := map[ID]uint64{}
		for i := range uint64(20_000) {
			k := id(r.Uint64N(15_000))
			_, known := want[k]
			if got, ok := table.get(k); ok != known || got != want[k] {
				t.Fatalf("%s: get = %d, %v; want %d, %v", name, got, ok, want[k], known)
			}
			if table.set(k, i) == known {
				t.Fatalf("%s: set says new is %v", name, !known)
			}
			want[k] = i
		}
		if table.n != len(want) || table.n > len(table.slots)/4*3 {
			t.Errorf("%s: %d ids in %d slots, want %d", name, table.n, len(table.slots), len(want))
		}
		longest := 0
		for run, i := 0, 0; i < 2*len(table.slots); i++ {
			if run++; table.slots[i%len(table.slots)].id == (ID{}) {
				run = 0
			}
			longest = max(longest, run)
		}
		if longest > 2000 { // of 15,000; how many there are depends on the seed
			t.Errorf("%s: %d ids in a row: they are not spread", name, longest)
		}
	}
}

// Every event has a record: it must not outgrow the size class that it fills.
func TestRecordIsSmall(t *testing.T) {
	t.Parallel()
	if size := reflect.TypeFor[Record]().Size(); size > 160 {
		t.Errorf("a record takes %d bytes", size)
	}
}
