package wallclock

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

// replacement is the code that reads a clock: its arguments are the clock in edi and a timespec in rsi. It makes the
// system call and adds to the seconds of CLOCK_REALTIME, which is 0, what stands at an address.
const (
	replacementHead = "\xb8\xe4\x00\x00\x00" + // mov eax, SYS_clock_gettime
		"\x0f\x05" + // syscall
		"\x85\xff" + // test edi, edi
		"\x75\x10" + // jne to the end
		"\x48\xb9" // mov rcx, the address
	replacementTail = "\x48\x8b\x09" + // mov rcx, [rcx]
		"\x48\x01\x0e" + // add [rsi], rcx
		"\xc3" // ret
)

// Follow makes this process's wall clock follow the clock in a file until the process ends. It is called once, before
// other goroutines begin.
func Follow(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	offset, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping %s: %w", path, err)
	}
	address := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(offset))))
	if err := replace(address); err != nil {
		return fmt.Errorf("replacing how the clock is read: %w", err)
	}
	return nil
}

// replace puts the replacement where __vdso_gettimeofday was, which Go does not call, and a jump to it where
// __vdso_clock_gettime was.
func replace(offset uint64) error {
	begin, end, err := vdso()
	if err != nil {
		return err
	}
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0) // writes to pages that are read-only, too
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	image := make([]byte, end-begin)
	if _, err := memory.ReadAt(image, begin); err != nil {
		return err
	}
	at, err := functions(image, "__vdso_clock_gettime", "__vdso_gettimeofday")
	if err != nil {
		return err
	}
	code := binary.LittleEndian.AppendUint64([]byte(replacementHead), offset)
	code = append(code, replacementTail...)
	if at[1].Size < uint64(len(code)) || at[0].Value%8 != 0 {
		return errors.New("this kernel's functions cannot be replaced")
	}
	if _, err := memory.WriteAt(code, begin+int64(at[1].Value)); err != nil {
		return err
	}
	const length = 5
	jump := bytes.Clone(image[at[0].Value:][:8]) // one aligned word, so that a thread sees all of it or nothing
	jump[0] = 0xe9
	binary.LittleEndian.PutUint32(jump[1:], uint32(at[1].Value-at[0].Value-length))
	_, err = memory.WriteAt(jump, begin+int64(at[0].Value))
	return err
}

// vdso returns where this process has the vDSO.
func vdso() (begin, end int64, err error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = maps.Close() }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		if strings.HasSuffix(lines.Text(), "[vdso]") {
			_, err := fmt.Sscanf(lines.Text(), "%x-%x", &begin, &end)
			return begin, end, err
		}
	}
	return 0, 0, errors.Join(errors.New("this process has no vDSO"), lines.Err())
}

// functions returns functions of the vDSO.
func functions(image []byte, names ...string) ([]elf.Symbol, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	all, err := file.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var found []elf.Symbol
	for _, name := range names {
		for _, s := range all {
			if s.Name == name {
				found = append(found, s)
				break
			}
		}
	}
	if len(found) != len(names) {
		return nil, fmt.Errorf("this kernel does not have all of %q", names)
	}
	return found, nil
}
