package gpu

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPTXVersions(t *testing.T) {
	last := 0
	for _, row := range ptxDrivers {
		require.Greater(t, row.ptx, last)
		last = row.ptx
		driver, known := DriverForPTX(row.ptx)
		require.True(t, known)
		require.Equal(t, row.driver, driver)
		require.GreaterOrEqual(t, NewestPTX(driver), row.ptx)
	}
	for driver, want := range map[int]int{11000: 70, 11040: 74, 12060: 85, 12070: 86, 13000: 90, 99000: 95, 0: 10} {
		require.Equal(t, want, NewestPTX(driver), "driver %d", driver)
	}
	_, known := DriverForPTX(79)
	require.False(t, known)
	require.Equal(t, "12.8", CUDAVersion(12080))
	require.Equal(t, "8.7", PTXVersion(87))
}

func TestErrorTexts(t *testing.T) {
	err := error(&Error{Op: "cuMemAlloc", Device: 1, Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Detail: "8 bytes", Kind: ErrOutOfMemory})
	require.EqualError(t, err, "cuMemAlloc on device 1: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2): 8 bytes")
	require.ErrorIs(t, err, ErrOutOfMemory)
	require.EqualError(t, &Error{Op: "open", Device: -1}, "open")

	err = &FaultError{Kind: ErrIllegalAddress, Device: 0, Kernel: "k", Block: Dim3{1, 2, 3}, Thread: Dim3{4, 5, 6}, File: "k.ptx", Line: 7,
		Text: "st.u32 [%rd1], 0;", Addr: 0x10, Size: 4, Detail: "freed"}
	require.EqualError(t, err, "device 0: illegal address in k block (1,2,3) thread (4,5,6) at k.ptx:7 `st.u32 [%rd1], 0;`, 4 bytes at 0x10: freed")
	require.True(t, errors.Is(err, ErrIllegalAddress))
	require.EqualError(t, &FaultError{Kind: ErrLaunchFailed, Device: 2}, "device 2: launch failed")

	require.Equal(t, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", UUIDString([16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}))
	require.Equal(t, 90, DeviceInfo{Major: 9}.SM())
	require.EqualValues(t, 24, Dim3{2, 3, 4}.Count())
}
