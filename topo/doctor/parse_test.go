package doctor

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// port is a bridge's configuration space with an ACS control word, behind another extended capability.
func port(control uint16) []byte {
	b := make([]byte, 4096)
	copy(b, []byte{0x86, 0x80, 0, 0, 0, 0, 0x10})
	b[0x34] = 0x40
	copy(b[0x40:], []byte{0x05, 0x68, 0, 0})
	copy(b[0x68:], []byte{0x10, 0, 0x62, 0})
	copy(b[0x100:], []byte{0x01, 0, 0x02, 0x14}) // next at 0x140
	copy(b[0x140:], []byte{0x0d, 0, 0x01, 0, 0x5f, 0, byte(control), byte(control >> 8)})
	return b
}

func TestACS(t *testing.T) {
	loop := port(0)
	copy(loop[0x140:], []byte{0x02, 0, 0x01, 0x10}) // back to 0x100
	cut := port(0x1d)[:0x144]
	for _, c := range []struct {
		name      string
		config    []byte
		text      string
		redirects bool
		err       error
	}{
		{"on", port(0x001d), "ACS control 0x001d (SrcValid ReqRedir CmpltRedir UpstreamFwd)", true, nil},
		{"valid only", port(0x0001), "ACS control 0x0001 (SrcValid)", false, nil},
		{"egress", port(0x0020), "ACS control 0x0020 (EgressCtrl)", true, nil},
		{"off", port(0), "ACS control 0x0000 (all off)", false, nil},
		{"none", make([]byte, 4096), "no ACS capability", false, nil},
		{"not root", port(0x1d)[:64], "", false, errShortConfig},
		{"legacy", port(0x1d)[:256], "", false, errNoExtended},
		{"empty", nil, "", false, errShortConfig},
		{"off the bus", bytes.Repeat([]byte{0xff}, 4096), "", false, errOffBus},
		{"loop", loop, "", false, errConfigLoop},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := parseACS(c.config)
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				require.Equal(t, c.text, a.String())
				require.Equal(t, c.redirects, a.redirects())
			}
		})
	}
	_, err := parseACS(cut)
	require.ErrorContains(t, err, "cut off")
}

func TestPortType(t *testing.T) {
	kind, ok := portType(port(0))
	require.True(t, ok)
	require.Equal(t, 6, kind)
	b := port(0)
	b[0x69] = 0x40 // the list bites its tail before the PCIe capability
	b[0x68] = 0x05
	_, ok = portType(b)
	require.False(t, ok)
	_, ok = portType(port(0)[:64])
	require.False(t, ok, "the list lies beyond what is readable")
	b = port(0)
	b[6] = 0
	_, ok = portType(b)
	require.False(t, ok, "no capability list")
}

func TestResource(t *testing.T) {
	bars, err := parseResource("0x10 0x1f 0x200\n0x210000000000 0x211fffffffff 0x14220c\n0x0 0x0 0x0\n")
	require.NoError(t, err)
	require.Equal(t, []bar{{0x10, 16, false}, {0x210000000000, 128 << 30, true}, {}}, bars)
	one, err := bar1(bars)
	require.NoError(t, err)
	require.Equal(t, bars[1], one)
	// Hopper: registers at a 64-bit address, and BAR1 in the third region.
	bars, err = parseResource("0x23000000000 0x23000ffffff 0x14220c\n0x0 0x0 0x0\n0x20000000000 0x23fffffffff 0x14220c\n")
	require.NoError(t, err)
	one, err = bar1(bars)
	require.NoError(t, err)
	require.Equal(t, uint64(0x20000000000), one.start)
	_, err = bar1(bars[:2])
	require.EqualError(t, err, "2 regions, want at least 3")
	for text, want := range map[string]string{
		"": "line 1: 0 fields", "0x1 0x2": "line 1: 2 fields", "0 0 0\nx 0 0": `line 2: "x" is not a number`,
		"0x2 0x1 0x0": "line 1: the end lies before the start", "-1 2 3": "not a number",
	} {
		_, err := parseResource(text)
		require.ErrorContains(t, err, want)
	}
}

func TestCmdline(t *testing.T) {
	for text, want := range map[string][]param{
		"":                             nil,
		"ro  iommu=pt\n":               {{"ro", ""}, {"iommu", "pt"}},
		`a="x y" "b=z w" c`:            {{"a", "x y"}, {"b", "z w"}, {"c", ""}},
		"iommu=pt -- iommu=off":        {{"iommu", "pt"}},
		`pci=a=b open="`:               {{"pci", "a=b"}, {"open", ""}},
		"intel_iommu=on,sm_on\tquiet ": {{"intel_iommu", "on,sm_on"}, {"quiet", ""}},
	} {
		require.Equal(t, want, parseCmdline(text), text)
	}
}

func TestMounts(t *testing.T) {
	got := parseMounts("27 26 0:24 / /dev/shm rw shared:4 - tmpfs shm rw,size=64k\n28 26 0:24 / /mnt/a\\040b rw - ext4 /dev/sda rw\nrubbish\n1 2 - 3\n")
	require.Equal(t, []mount{{"/dev/shm", "tmpfs", "rw,size=64k"}, {"/mnt/a b", "ext4", "rw"}}, got)
}

func TestSize(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "65536k": 64 << 20, "64M": 64 << 20, "2g": 2 << 30, "4096": 4096} {
		n, ok := parseSize(text)
		require.True(t, ok, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "k", "50%", "-1", "1t", "18446744073709551615k", "1 k"} {
		_, ok := parseSize(text)
		require.False(t, ok, text)
	}
	_, ok := sizeOption("rw,nr_inodes=5")
	require.False(t, ok)
}

func TestLimits(t *testing.T) {
	got := parseLimits("Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max locked memory         65536                unlimited            bytes     \n" +
		"Max address space         unlimited            unlimited            bytes     \n" +
		"Max open files            many                 4096                 files     \nMax\n")
	require.Equal(t, map[string]uint64{"Max locked memory": 65536, "Max address space": math.MaxUint64}, got)
}

func TestReleases(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: 11.4.0": "535.129.03",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build":                             "580.65.06",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.56  Fri Mar 15":                                            "418.56",
		"GCC version: 11.4.0": "", "": "",
	} {
		require.Equal(t, want, parseRelease(text), text)
	}
	require.Equal(t, "535.129.03", libRelease("usr/lib/libcuda.so.535.129.03"))
	require.Empty(t, libRelease("usr/lib/libcuda.so.1"))
	for release, want := range map[string]int{"440.33": 0, "450.80.02": 11000, "535.129.03": 12020, "999.1": 13000, "x": 0} {
		require.Equal(t, want, cudaOf(release), release)
	}
	for release, want := range map[string]bool{"5.6.0": true, "5.15.0-91-generic": true, "6.1": true, "5.5.19": false, "4.18.0-553.el8": false} {
		got, ok := kernelAtLeast(release, 5, 6)
		require.True(t, ok)
		require.Equal(t, want, got, release)
	}
	_, ok := kernelAtLeast("new", 5, 6)
	require.False(t, ok)
}

func TestSmallWords(t *testing.T) {
	require.Equal(t, uint64(4026531839), namespaceID("ipc:[4026531839]"))
	require.Zero(t, namespaceID("ipc:[x]"))
	require.Zero(t, namespaceID("ipc"))
	require.Equal(t, []param{{"ForceP2P", "0x11"}, {"B", "1"}}, parseDwords(`"ForceP2P=0x11; B = 1;;C;=2"`))
	require.Equal(t, []string{"usr/local/lib", "opt/a", "opt/b"}, parseLinkerConf("# c\n/usr/local/lib # d\n/opt/a:/opt/b\nrelative /\ninclude *.conf"))
	require.Equal(t, shortAddr("0000:1b:00.0"), shortAddr("00000000:1B:00.0"))
	require.NotEqual(t, shortAddr("0001:1b:00.0"), shortAddr("0000:1b:00.0"))
	require.Equal(t, "1.5 GiB", bytesText(3<<29))
	require.Equal(t, "64 MiB", bytesText(64<<20))
	require.Equal(t, "17 B", bytesText(17))
	require.Equal(t, 1, distance("FENCELINE_ALGOS", "FENCELINE_ALGO"))
	require.Equal(t, 3, distance("", "abc"))
	require.Equal(t, 100, distance(strings.Repeat("x", 101), ""))
}

func TestVisible(t *testing.T) {
	h := &host{gpus: []pciDevice{{driver: "nvidia"}, {driver: "nvidia"}, {driver: "vfio-pci"}}}
	for value, want := range map[string]Status{
		"0": OK, "1,0": OK, "GPU-8932f937,MIG-4f": OK, " 0 , 1": OK,
		"": Fail, " ": Fail, "-1": Fail, "none": Fail, "2": Fail, "NoDevFiles": Fail,
		"0,-1": Warn, "0,2": Warn, "0,0": Warn, "0,x": Warn, "0,": Warn,
	} {
		require.Equal(t, want, judgeVisible(h, value).status, "%q", value)
	}
}

func TestToggle(t *testing.T) {
	judge := toggle(Fail, "is bad", "unset it")
	for value, want := range map[string]Status{"1": Fail, "0": OK, "": OK, "yes": Warn, "true": Warn, "2": Warn, "00": Warn} {
		require.Equal(t, want, judge(nil, value).status, "%q", value)
	}
}

func TestInspect(t *testing.T) {
	here := machines["amd64"]
	if m, ok := machines[runtime.GOARCH]; ok {
		here = m
	}
	lacks, err := inspect(bytes.NewReader(sharedObject(here, "a", "b")), []feature{{"a", "x"}, {"c", "y"}})
	require.NoError(t, err)
	require.Equal(t, []string{"c (y)"}, lacks)
	other := machines["arm64"]
	if here == other {
		other = machines["amd64"]
	}
	_, err = inspect(bytes.NewReader(sharedObject(other)), nil)
	require.ErrorContains(t, err, "built for "+other.String())
	small := sharedObject(here)
	small[4] = 1
	_, err = inspect(bytes.NewReader(small), nil)
	require.EqualError(t, err, "a 32-bit library")
	_, err = inspect(bytes.NewReader(sharedObject(here)[:64]), nil)
	require.ErrorIs(t, err, errUnreadable)
	for _, data := range []string{"", "INPUT(libnccl.so.2)", "\x7fELF"} {
		_, err = inspect(strings.NewReader(data), nil)
		require.Error(t, err, "%q", data)
	}
}

// No input makes a parser crash or hang, and none gives a nonsense value.
func FuzzParsers(f *testing.F) {
	f.Add(port(0x1d))
	f.Add([]byte("0x10 0x1f 0x200\n"))
	f.Add([]byte(`iommu=pt "a b=c" -- x`))
	f.Add([]byte("27 26 0:24 / /dev/\\040shm rw shared:4 - tmpfs shm rw,size=65536k\n"))
	f.Add([]byte("Max locked memory         65536                unlimited            bytes\n"))
	f.Add([]byte("NVRM version: x  535.129.03  y\nRegistryDwords: \"ForceP2P=0x11;A=1\""))
	f.Add([]byte("0,1,GPU-12,-1"))
	f.Add(sharedObject(machines["amd64"], "cuInit"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text := string(data)
		if a, err := parseACS(data); err == nil && !a.present && a.control != 0 {
			t.Fatal("a control word without a capability")
		}
		if kind, ok := portType(data); ok && (kind < 0 || kind > 15) {
			t.Fatal(kind)
		}
		if bars, err := parseResource(text); err == nil {
			for _, b := range bars {
				if b.start == 0 && b.size != 0 {
					t.Fatal("a size without an address")
				}
			}
		}
		for _, p := range parseCmdline(text) {
			if strings.Contains(p.name, "=") {
				t.Fatalf("%q", p.name)
			}
		}
		for _, m := range parseMounts(text) {
			sizeOption(m.options)
		}
		for name := range parseLimits(text) {
			if !strings.HasPrefix(name, "Max ") {
				t.Fatalf("%q", name)
			}
		}
		parseColons(text)
		parseDwords(text)
		libRelease(text)
		kernelAtLeast(text, 5, 6)
		namespaceID(text)
		cudaOf(parseRelease(text))
		for _, d := range parseLinkerConf(text) {
			if d == "" || strings.HasPrefix(d, "/") {
				t.Fatalf("%q", d)
			}
		}
		judgeVisible(&host{}, text)
		if c := clean(text); strings.ContainsAny(c, "\n\x1b\x00") || len(c) > 310 {
			t.Fatalf("%q", c)
		}
		if _, err := inspect(bytes.NewReader(data), cudaFeatures); err == nil && !bytes.HasPrefix(data, []byte("\x7fELF")) {
			t.Fatal("a library without a header")
		}
	})
}
