package gpu

import "fmt"

// ptxDrivers is each PTX ISA version (×10) with the first CUDA driver version that reads it, from the release
// history in the PTX ISA manual.
var ptxDrivers = []struct{ ptx, driver int }{
	{10, 1000}, {11, 1010}, {12, 2000}, {13, 2010}, {14, 2020}, {15, 2020}, {20, 3000}, {21, 3010}, {22, 3020}, {23, 4000},
	{30, 4010}, {31, 5000}, {32, 5050}, {40, 6000}, {41, 6050}, {42, 7000}, {43, 7050},
	{50, 8000}, {60, 9000}, {61, 9010}, {62, 9020}, {63, 10000}, {64, 10010}, {65, 10020},
	{70, 11000}, {71, 11010}, {72, 11020}, {73, 11030}, {74, 11040}, {75, 11050}, {76, 11060}, {77, 11070}, {78, 11080},
	{80, 12000}, {81, 12010}, {82, 12020}, {83, 12030}, {84, 12040}, {85, 12050}, {86, 12070}, {87, 12080}, {88, 12090},
	{90, 13000}, {91, 13010}, {92, 13020}, {93, 13030}, {94, 13040}, {95, 13050},
}

// DriverForPTX is the oldest CUDA driver version (1000*major + 10*minor) that reads PTX of an ISA version (×10).
// known is false for a version that is not in the table: what reads it is for the driver to say.
func DriverForPTX(version int) (driver int, known bool) {
	for _, row := range ptxDrivers {
		if row.ptx == version {
			return row.driver, true
		}
	}
	return 0, false
}

// NewestPTX is the newest PTX ISA version (×10) that a driver reads, as far as the table goes.
func NewestPTX(driver int) int {
	newest := ptxDrivers[0].ptx
	for _, row := range ptxDrivers {
		if row.driver <= driver {
			newest = row.ptx
		}
	}
	return newest
}

// CUDAVersion renders a driver version: 12080 is "12.8".
func CUDAVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// PTXVersion renders a PTX ISA version: 87 is "8.7".
func PTXVersion(v int) string { return fmt.Sprintf("%d.%d", v/10, v%10) }
