package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/topo"
)

func TestTopo(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
	}{
		{"", []string{"EMULATED: ", "GPU0\t X \tNV18", "GPU0\t X \tOK\tOK\tOK"}},
		{"--machine dgx1-v100 --plan", []string{"GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\n",
			"Plan for 8 rank(s) on device(s) 0,1,2,3,4,5,6,7: host: devices 0 and 5 have no peer access in either direction"}},
		{"--machine dgx1-v100 --plan --ranks 0,1,2,3", []string{"Plan for 4 rank(s) on device(s) 0,1,2,3: oneshot-push: all 4 devices reach each other"}},
		{"--machine one-way --plan --ranks 1,0", []string{"Plan for 2 rank(s) on device(s) 1,0: copy: "}},
	} {
		t.Run(c.args, func(t *testing.T) {
			code, stdout, stderr := demo(t, append([]string{"topo", "--backend", "emu"}, strings.Fields(c.args)...)...)
			require.Equal(t, exitGood, code, stderr)
			require.Empty(t, stderr)
			for _, want := range c.want {
				require.Contains(t, stdout, want)
			}
			require.Equal(t, strings.Contains(c.args, "--plan"), strings.Contains(stdout, "Plan"))
		})
	}
}

// The machine in --json is a record that --from and --machine file: read.
func TestTopoFrom(t *testing.T) {
	code, stdout, stderr := demo(t, "topo", "--machine", "pcie-2socket", "--json", "--plan", "--ranks", "0,7")
	require.Equal(t, exitGood, code, stderr)
	var rep struct {
		Version int
		Machine json.RawMessage
		Plan    planReport
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	require.Equal(t, reportVersion, rep.Version)
	require.Equal(t, allreduce.Host, rep.Plan.Algorithm)
	require.Equal(t, []int{0, 7}, rep.Plan.Devices)
	path := filepath.Join(t.TempDir(), "machine.json")
	require.NoError(t, os.WriteFile(path, rep.Machine, 0o600))

	_, here, _ := demo(t, "topo", "--machine", "pcie-2socket", "--plan", "--ranks", "0,7")
	code, from, stderr := demo(t, "topo", "--from", path, "--plan", "--ranks", "0,7")
	require.Equal(t, exitGood, code, stderr)
	require.Equal(t, here, from)
	code, stdout, stderr = demo(t, "devices", "--machine", "file:"+path)
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "GPU0\t X \tPIX\tPXB\tPXB\tSYS")

	require.NoError(t, os.WriteFile(path, rep.Machine[:len(rep.Machine)/2], 0o600))
	code, stdout, stderr = demo(t, "topo", "--from", path)
	require.Equal(t, exitUsage, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, path)
	require.Contains(t, stderr, topo.ErrFormat.Error())
}

// Each file that the demo writes of a machine it also reads.
func TestTopoOwnFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, args ...string) string {
		path := filepath.Join(dir, name)
		_, stdout, stderr := demo(t, args...)
		require.Empty(t, stderr)
		require.NoError(t, os.WriteFile(path, []byte(stdout), 0o600))
		return path
	}
	saved := filepath.Join(dir, "n.json")
	code, _, stderr := demo(t, "topo", "--machine", "nvlink", "--save", saved)
	require.Equal(t, exitGood, code, stderr)
	_, want, _ := demo(t, "topo", "--machine", "nvlink", "--plan")
	for _, path := range []string{
		saved, write("m.json", "topo", "--machine", "nvlink", "--json"), write("p.json", "probe", "--machine", "nvlink", "--numbers=false", "--json"),
	} {
		code, from, stderr := demo(t, "topo", "--from", path, "--plan")
		require.Equal(t, exitGood, code, stderr)
		require.Equal(t, want, from)
		code, _, stderr = demo(t, "topo", "--machine", "file:"+path)
		require.Equal(t, exitGood, code, stderr)
	}
	code, _, stderr = demo(t, "topo", "--from", write("d.json", "devices", "--backend", "emu", "--json"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, `this is JSON with the fields "backend", "devices", "p2p", "version": want a machine, a file of demo topo --save`)
	code, _, stderr = demo(t, "topo", "--from", dir)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "this is a folder")
}

// A paste leaves open what its driver would say. Its plan says so, and the machine emulated from it says what it decided.
func TestTopoOpen(t *testing.T) {
	const paste = "../../topo/testdata/dgx1-v100.txt"
	_, stdout, _ := demo(t, "topo", "--from", paste, "--plan")
	require.Contains(t, stdout, ": copy: 0→5: it is not known whether device 0 can read the memory of device 5, for nothing states it; "+
		"direct kernels are not risked on that, and the driver finds copies a way")
	require.NotContains(t, stdout, "Note: ")
	const note = "Note: the file states no peer access for 56 ordered pair(s), and an emulated machine needs an answer: " +
		"32 have it here, over NVLink or inside a NUMA node, and 24 are emulated as absent; demo topo --from leaves them open"
	for _, args := range []string{"topo --plan", "devices", "run --sizes 5 --dtype f32 --iters 1 --ranks 2"} {
		code, stdout, stderr := demo(t, append(strings.Fields(args), "--machine", "file:"+paste)...)
		require.Equal(t, exitGood, code, stderr)
		require.Contains(t, stdout, note)
	}
	_, stdout, _ = demo(t, "topo", "--machine", "dgx1-v100")
	require.NotContains(t, stdout, "Note: ")
}

// A paste that refuses reading and allows writing is a machine that claims just that: nothing hangs.
func TestTopoWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "writes.txt")
	block := func(c, state string) string {
		return "nvidia-smi topo --p2pstatus " + c + "\n \tGPU0\tGPU1\t\n GPU0\tX\t" + state + "\t\n GPU1\t" + state + "\tX\t\n\n"
	}
	require.NoError(t, os.WriteFile(path, []byte("\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n\n"+block("r", "CNS")+block("w", "OK")), 0o600))
	const want = "oneshot-push: 0→1: device 0 cannot read the memory of device 1 (CNS), so peers are only written to"
	for _, from := range [][]string{{"--from", path}, {"--machine", "file:" + path}} {
		code, stdout, stderr := demo(t, append([]string{"topo", "--plan"}, from...)...)
		require.Equal(t, exitGood, code, stderr)
		require.Contains(t, stdout, want)
		require.Contains(t, stdout, "GPU0\t X \tCNS/OK")
	}
	_, r := jsonRun(t, "--machine", "file:"+path, "--sizes", "5", "--dtype", "f32", "--iters", "1")
	require.True(t, r.OK, r.Error)
	require.Contains(t, r.Results[0].Plan.Reason, "cannot read the memory of device 1 (CNS)")
	code, probes := probed(t, "--machine", "file:"+path, "--timeout", "1m")
	require.Equal(t, exitGood, code)
	got := probes.Measurement.Pairs[0][1]
	require.Equal(t, "not probed: reading is stated as not supported (CNS)", got.Read.Detail)
	require.Equal(t, []topo.Tri{topo.Unknown, topo.Yes}, []topo.Tri{got.Read.Answer, got.Write.Answer})
}

// What is planned may be any message, and what is printed any capability.
func TestTopoCall(t *testing.T) {
	code, stdout, stderr := demo(t, strings.Fields("topo --machine nvlink --plan --bytes 8MB --dtype bf16 --p2p r,a")...)
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "A call of 8388608 bytes of bf16: ")
	require.Contains(t, stdout, " in 2 piece(s)")
	require.Contains(t, stdout, "\n$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\tGPU2\tGPU3\t\n GPU0\tX\tOK\tOK\tOK\t\n")
	require.Contains(t, stdout, "\n$ nvidia-smi topo -p2p a\n")
	require.NotContains(t, stdout, "-p2p w")
	_, stdout, _ = demo(t, strings.Fields("topo --machine nvlink --plan --json --bytes 100 --dtype f16")...)
	var rep topoReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	require.Equal(t, uint64(100), rep.Plan.Bytes)
	require.Equal(t, allreduce.F16, rep.Plan.DType)
	require.Positive(t, rep.Plan.Blocks*rep.Plan.Threads)
}

func TestTopoUsage(t *testing.T) {
	for _, c := range []struct{ args, env, want string }{
		{"topo --ranks 0,1", "", `--ranks "0,1": says for which ranks to plan: add --plan`},
		{"topo --bytes 1KB", "", "add --plan"},
		{"topo --dtype f16", "", "add --plan"},
		{"topo --plan --bytes 1KB:2KB", "", `--bytes "1KB:2KB": not a size`},
		{"topo --plan --bytes 5", "", "use a multiple of 4"},
		{"topo --plan --dtype f64", "", `unknown dtype "f64"`},
		{"topo --p2p rw", "", `--p2p "rw": no such capability`},
		{"topo --p2p=", "", "the list is empty"},
		{"topo --plan --ranks 0,9", "", `--ranks "0,9": `},
		{"topo --plan --ranks x", "", "invalid argument"},
		{"topo --plan --ranks=", "", "--ranks"},
		{"topo --from x --machine pcie", "", "leave one of them out"},
		{"topo --from /nowhere/at/all", "", "no such file"},
		{"topo --plan", "ring", `FENCELINE_ALGO="ring": want auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl`},
	} {
		t.Run(c.args, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("FENCELINE_ALGO", c.env)
			}
			code, stdout, stderr := demo(t, strings.Fields(c.args)...)
			require.Equal(t, exitUsage, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
		})
	}
}

// Knobs change the plan.
func TestTopoKnobs(t *testing.T) {
	t.Setenv("FENCELINE_P2P_LEVEL", "PIX")
	code, stdout, stderr := demo(t, "topo", "--machine", "pcie", "--plan")
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "host: the path between devices 0 and 2 is PXB, farther than FENCELINE_P2P_LEVEL=PIX allows")
	_, stdout, _ = demo(t, "topo", "--machine", "pcie", "--plan", "--ranks", "0,1")
	require.Contains(t, stdout, "oneshot-push: ")
}

// --svg draws what is open, with what probing found, or what a file describes.
func TestTopoSVG(t *testing.T) {
	path := filepath.Join(t.TempDir(), "machine.svg")
	for _, args := range []string{"--machine dgx1-v100", "--machine lying", "--from ../../topo/testdata/dgx1-v100.txt"} {
		code, stdout, stderr := demo(t, append([]string{"topo", "--svg", path}, strings.Fields(args)...)...)
		require.Equal(t, exitGood, code, stderr)
		require.Contains(t, stdout, "Drawn in "+path)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(text, new(struct{ XMLName xml.Name })), "%s", args)
		require.Contains(t, string(text), "GPU1")
	}
	code, _, stderr := demo(t, "topo", "--svg", filepath.Join(path, "inside"), "--backend", "emu")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--svg")
}

// What topo prints is read again, and means the same.
func TestTopoOwnText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.txt")
	for _, args := range []string{
		"--from ../../topo/testdata/hgx-h100-nv18-nics.txt --p2p r,w", "--from ../../topo/testdata/two-5090-p2p-off.txt", "--machine one-way --p2p r,w,a",
	} {
		_, want, stderr := demo(t, append([]string{"topo"}, strings.Fields(args)...)...)
		require.Empty(t, stderr)
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		code, _, stderr := demo(t, "topo", "--from", path)
		require.Equal(t, exitGood, code, stderr)
		plan := append([]string{"topo", "--plan"}, strings.Fields(args)...)
		_, before, _ := demo(t, plan...)
		_, after, _ := demo(t, "topo", "--plan", "--from", path)
		require.Equal(t, before[strings.Index(before, "Plan for"):], strings.ReplaceAll(after[strings.Index(after, "Plan for"):], " (NS)", ""), args)
	}
}

// An algorithm that cannot be had is refused in the same way by a plan and by a run, with the variable that asked for it.
func TestTopoNoPlan(t *testing.T) {
	t.Setenv("FENCELINE_ALGO", "oneshot-pull")
	for _, args := range []string{"topo --plan", "run --sizes 5"} {
		code, stdout, stderr := demo(t, append(strings.Fields(args), "--machine", "no-p2p")...)
		require.Equal(t, exitUsage, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "FENCELINE_ALGO asks for it: set it to auto, copy or host, or unset it")
	}
}

// What uses no peer access has none probed.
func TestNoPeers(t *testing.T) {
	for _, knob := range []string{"FENCELINE_ALGO=host", "FENCELINE_P2P_LEVEL=LOC", "FENCELINE_P2P_DISABLE=1"} {
		t.Run(knob, func(t *testing.T) {
			name, value, _ := strings.Cut(knob, "=")
			t.Setenv(name, value)
			code, r := jsonRun(t, "--machine", "lying", "--sizes", "5", "--dtype", "f32", "--iters", "1")
			require.Equal(t, exitGood, code, r.Error)
			require.Nil(t, r.Measurement)
			_, stdout, _ := demo(t, "topo", "--machine", "lying", "--plan", "--json")
			require.NotContains(t, stdout, `"measurement"`)
		})
	}
	t.Setenv("FENCELINE_ALGO", "copy")
	_, stdout, _ := demo(t, "topo", "--machine", "lying", "--plan", "--json")
	require.NotContains(t, stdout, `"measurement"`)
	code, r := jsonRun(t, "--machine", "lying", "--sizes", "5", "--dtype", "f32", "--iters", "1")
	require.Equal(t, exitGood, code, r.Error)
	require.NotNil(t, r.Measurement, "copies must keep off a path that lies")
	require.False(t, noPeers(allreduce.OneshotPull, allreduce.Knobs{Algorithm: allreduce.Host}), "a flag wins over the knob")
}

// Whatever is wrong with a file that a flag names is wrong usage of that flag, and the remedy is said.
func TestTopoFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	long := write("long", strings.Repeat("x", 9<<20))
	missing := filepath.Join(dir, "no", "file")
	for _, c := range []struct{ flag, path, want string }{
		{"--save", missing, "make its folder first"},
		{"--svg", missing, "make its folder first"},
		{"--from", missing, "name a file that is there"},
		{"--check", missing, "name a file that is there"},
		{"--from", long, "longer than 8 MiB"},
		{"--check", long, "longer than 8 MiB"},
		{"--from", write("syntax", `{"version" 1}`), "save it again, or name another file"},
		{"--check", write("syntax", `{"version" 1}`), "save it again, or name another file"},
		{"--check", write("foreign", `{"version": 1}`), "name a file that was saved as a baseline"},
		{"--from", write("text", "hello\n"), "want the output of"},
	} {
		code, stdout, stderr := demo(t, "topo", c.flag, c.path)
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, stdout)
		require.True(t, strings.HasPrefix(stderr, "demo: "+c.flag+": "), stderr)
		require.Contains(t, stderr, c.path)
		require.Contains(t, stderr, c.want)
		require.NotContains(t, stderr, "/.file.", "the name that the file has for a moment")
	}
}
