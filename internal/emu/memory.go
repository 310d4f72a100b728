package emu

import (
	"fmt"
	"sort"

	"github.com/fenceline/fenceline/internal/gpu"
)

// The unified address space. Every owner (a device, or the host) has a window of its own, so an address
// names its owner. Inside a window addresses only grow: a freed one comes back after the whole
// window has been used, and a stale pointer keeps pointing at the memory of what was freed.
const (
	windowBits = 42 // 4 TiB of addresses each
	windowSize = 1 << windowBits
	allocAlign = 512     // of every allocation; the seam promises 256
	guard      = 1 << 16 // bytes at least between two allocations
	keepFreed  = 1 << 12 // freed allocations remembered in each window, for messages
	junk       = 0xCB    // what fresh memory holds
	junkLimit  = 64 << 20
)

// Owners that are no device.
const hostOwner = -1

// area is an allocation, live or freed.
type area struct {
	base  uint64
	size  uint64
	data  []byte // nil once freed
	owner int    // device, or hostOwner
	what  string // "allocation", or what else it is: "memory of variable x"
	user  bool   // made by MemAlloc or HostAlloc, and so freed by the caller
}

func (a *area) end() uint64 { return a.base + a.size }
func (a *area) live() bool  { return a.data != nil }

// String is "64-byte allocation of device 1".
func (a *area) String() string {
	if a.owner == hostOwner {
		return fmt.Sprintf("%d-byte pinned host %s", a.size, a.what)
	}
	return fmt.Sprintf("%d-byte %s of device %d", a.size, a.what, a.owner)
}

// space is one owner's window.
type space struct {
	owner int
	start uint64
	next  uint64  // where the next allocation may begin
	areas []*area // by address, freed ones too
	freed int     // how many of areas
	used  uint64  // bytes live
	limit uint64  // bytes that may be live
}

func newSpace(owner int, limit uint64) *space {
	start := uint64(owner+2)<<windowBits + guard // so that "before the first one" is inside the window too
	return &space{owner: owner, start: start, next: start, limit: limit}
}

// ownerOf is the owner of the window an address lies in, if any of that number of devices.
func ownerOf(addr uint64, devices int) (owner int, ok bool) {
	w := addr >> windowBits
	if w < 1 || w > uint64(devices)+1 {
		return 0, false
	}
	return int(w) - 2, true
}

// alloc makes size bytes, or gives nil when the owner has not that many left.
func (s *space) alloc(size uint64, what string, user bool) *area {
	if size > s.limit-s.used {
		return nil
	}
	base, ok := s.place(size)
	if !ok {
		return nil
	}
	// Rounded up so that the bytes are aligned as the address is, to 8 at least.
	data := make([]byte, (size+255)&^255)[:size:size]
	if s.owner != hostOwner {
		fill(data[:min(size, junkLimit)], junk)
	}
	a := &area{base: base, size: size, data: data, owner: s.owner, what: what, user: user}
	i := s.after(base)
	s.areas = append(s.areas, nil)
	copy(s.areas[i+1:], s.areas[i:])
	s.areas[i] = a
	s.used += size
	s.next = alignUp(a.end()+guard, allocAlign)
	return a
}

// place finds an address: the next unused one, or once the window is used up the next gap.
func (s *space) place(size uint64) (uint64, bool) {
	end := s.start - guard + windowSize
	i := s.after(s.next)
	room := i == 0 || s.areas[i-1].end()+guard <= s.next // once around, older ones may be there
	if room && s.next+size+guard <= end && (i == len(s.areas) || s.next+size+guard <= s.areas[i].base) {
		return s.next, true
	}
	s.forget(len(s.areas))
	at := s.start
	for _, a := range s.areas { // live ones now
		if at+size+guard <= a.base {
			return at, true
		}
		at = alignUp(a.end()+guard, allocAlign)
	}
	return at, at+size+guard <= end
}

// free ends an area's life; the record stays, for messages.
func (s *space) free(a *area) {
	s.used -= a.size
	a.data = nil
	if s.freed++; s.freed > keepFreed {
		s.forget(keepFreed / 2)
	}
}

// forget drops the n freed records of the lowest addresses, which are the oldest as addresses grow.
func (s *space) forget(n int) {
	kept := s.areas[:0]
	for _, a := range s.areas {
		if !a.live() && n > 0 {
			n--
			s.freed--
			continue
		}
		kept = append(kept, a)
	}
	clear(s.areas[len(kept):])
	s.areas = kept
}

// after is the index of the first area that begins beyond addr.
func (s *space) after(addr uint64) int {
	return sort.Search(len(s.areas), func(i int) bool { return s.areas[i].base > addr })
}

// at is the live area that addr points into, or nil.
func (s *space) at(addr uint64) *area {
	i := s.after(addr)
	if i == 0 {
		return nil
	}
	if a := s.areas[i-1]; a.live() && addr < a.end() {
		return a
	}
	return nil
}

// explain says what is at an address that no live area holds, or that a range runs out of.
func (s *space) explain(addr, size uint64) string {
	i := s.after(addr)
	if i > 0 {
		a := s.areas[i-1]
		switch {
		case addr >= a.end() && addr-a.end() < guard:
			return fmt.Sprintf("%d bytes past the end of %s%v", addr-a.end(), freedWord(a), a)
		case addr < a.end() && addr+size > a.end() && a.live():
			return fmt.Sprintf("runs %d bytes past the end of a %v", addr+size-a.end(), a)
		case addr < a.end() && !a.live():
			return fmt.Sprintf("freed %v", a)
		}
	}
	if i < len(s.areas) && s.areas[i].base-addr < guard {
		a := s.areas[i]
		return fmt.Sprintf("%d bytes before %s%v", a.base-addr, freedWord(a), a)
	}
	if s.owner == hostOwner {
		return "no pinned host memory is allocated there"
	}
	return fmt.Sprintf("nothing of device %d is allocated there", s.owner)
}

func freedWord(a *area) string {
	if a.live() {
		return "a "
	}
	return "the freed "
}

func alignUp(x, to uint64) uint64 { return (x + to - 1) &^ (to - 1) }

// fill sets every byte of b by doubling copies.
func fill(b []byte, v byte) {
	if len(b) == 0 {
		return
	}
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// space is the window of an owner.
func (d *driver) space(owner int) *space {
	if owner == hostOwner {
		return d.host
	}
	return d.devices[owner].mem
}

// find is the live area that addr points into; why says what is wrong when there is none.
func (d *driver) find(addr uint64) (a *area, why string) {
	if addr == 0 {
		return nil, "null pointer"
	}
	owner, ok := ownerOf(addr, len(d.devices))
	if !ok {
		return nil, fmt.Sprintf("%#x is no address of this machine's memory", addr)
	}
	s := d.space(owner)
	if a = s.at(addr); a == nil {
		return nil, fmt.Sprintf("%#x: %s", addr, s.explain(addr, 1))
	}
	return a, ""
}

// slice finds [p, p+n) inside one live area.
func (d *driver) slice(p gpu.Ptr, n uint64) (data []byte, a *area, why string) {
	a, why = d.find(uint64(p))
	if a == nil {
		return nil, nil, why
	}
	off := uint64(p) - a.base
	if n > a.size-off {
		return nil, a, fmt.Sprintf("%d bytes at offset %d run past the end of a %v", n, off, a)
	}
	return a.data[off : off+n : off+n], a, ""
}
