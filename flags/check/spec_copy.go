package check

import (
	"encoding/binary"
	"sync"

	"github.com/fenceline/fenceline/internal/ptx"
)

// copyPTX copies n bytes in a stream, as a copy engine does: what is before it in the stream has ended, what is behind
// it has not begun, and nothing else is ordered.
const copyPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry copy(.param .u64 dst, .param .u64 src, .param .u64 bytes)
{
	.reg .pred p;
	.reg .b16 h;
	.reg .b32 w, t;
	.reg .b64 d, s, i, n, words, a;
	ld.param.u64 d, [dst];
	ld.param.u64 s, [src];
	ld.param.u64 n, [bytes];
	cvta.to.global.u64 d, d;
	cvta.to.global.u64 s, s;
	mov.u32 t, %tid.x;
	cvt.u64.u32 i, t;
	and.b64 words, n, -4;
	shl.b64 i, i, 2;
loop:
	setp.ge.u64 p, i, words;
	@p bra tail;
	add.u64 a, s, i;
	ld.global.u32 w, [a];
	add.u64 a, d, i;
	st.global.u32 [a], w;
	add.u64 i, i, 128;
	bra loop;
tail:
	cvt.u64.u32 i, t;
	add.u64 i, i, words;
	setp.ge.u64 p, i, n;
	@p bra done;
	add.u64 a, s, i;
	ld.global.u8 h, [a];
	add.u64 a, d, i;
	st.global.u8 [a], h;
done:
	ret;
}
`

var copyKernel = sync.OnceValue(func() *ptx.Kernel {
	m, err := ptx.Parse("a copy in the stream", []byte(copyPTX))
	if err != nil { // a constant; a test runs it
		panic(err)
	}
	k, _ := m.Kernel("copy")
	return k
})

// copy adds a copy of n bytes from the start of one buffer to that of another to a rank's stream.
func (b *specBuild) copy(name string, dst, src, n, rank int) {
	b.task(Task{Device: rank % b.devices, Name: name, Kernel: copyKernel(), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1},
		Params: func(address func(int) uint64) []byte {
			p := binary.LittleEndian.AppendUint64(nil, address(dst))
			p = binary.LittleEndian.AppendUint64(p, address(src))
			return binary.LittleEndian.AppendUint64(p, uint64(n))
		}}, rank, 0)
}
