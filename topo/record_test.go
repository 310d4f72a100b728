package topo

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func hostTree(t *testing.T, release, boot string) string {
	root := t.TempDir()
	for name, text := range map[string]string{"osrelease": release, "random/boot_id": boot} {
		path := filepath.Join(root, "proc/sys/kernel", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	return root
}

func TestReadKey(t *testing.T) {
	root := hostTree(t, "6.1.0-18-amd64", "5a0c-1")
	m := machine2(Pair{}, Pair{})
	uuids := []string{m.Devices[0].UUID, m.Devices[1].UUID}
	k, err := ReadKey("/nowhere", m) // an emulated machine needs no host
	require.NoError(t, err)
	require.Equal(t, Key{UUIDs: uuids, Driver: "emu one-way", Kernel: "emulated"}, k)

	m.Emulated = false
	k, err = ReadKey(root, m)
	require.NoError(t, err)
	require.Equal(t, Key{UUIDs: uuids, Driver: "API 13000", Kernel: "6.1.0-18-amd64", BootID: "5a0c-1"}, k)
	m.Driver.Release = "580.95.05"
	k, err = ReadKey(root, m)
	require.NoError(t, err)
	require.Equal(t, "580.95.05", k.Driver)

	_, err = ReadKey("/nowhere", m)
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = ReadKey(hostTree(t, "6.1", ""), m)
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, "boot_id is empty")
	m.Devices[1].UUID = ""
	_, err = ReadKey(root, m)
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, "device 1 has no UUID")
}

func TestKeyChanges(t *testing.T) {
	k := Key{UUIDs: []string{"GPU-1", "GPU-2"}, Driver: "580", Kernel: "6.1", BootID: "a"}
	require.Empty(t, k.Changes(k))
	for want, now := range map[string]Key{
		"devices were GPU-1,GPU-2, now GPU-2,GPU-1": {UUIDs: []string{"GPU-2", "GPU-1"}, Driver: "580", Kernel: "6.1", BootID: "a"},
		"driver was 580, now 590":                   {UUIDs: k.UUIDs, Driver: "590", Kernel: "6.1", BootID: "a"},
		"kernel was 6.1, now 6.2":                   {UUIDs: k.UUIDs, Driver: "580", Kernel: "6.2", BootID: "a"},
		"boot was a, now -":                         {UUIDs: k.UUIDs, Driver: "580", Kernel: "6.1"},
	} {
		require.Equal(t, []string{want}, k.Changes(now))
	}
}

// measured2 is a measurement of two devices; one check failed.
func measured2() *Measurement {
	good := Measured{Read: Check{Answer: Yes}, Write: Check{Answer: Yes}, Flags: Check{Answer: Yes}, FlagLatency: 800, CopyRate: 40}
	bad := good
	bad.Read = Check{Answer: No, Offset: 8, Expected: 0x1234, Got: 0}
	return &Measurement{Version: FormatVersion, Key: Key{UUIDs: []string{"GPU-1", "GPU-2"}, Driver: "580", Kernel: "6.1", BootID: "a"},
		Pairs: [][]Measured{{{}, good}, {bad, {}}}}
}

func TestCache(t *testing.T) {
	c := Cache{Dir: filepath.Join(t.TempDir(), "not", "there")}
	m := measured2()
	_, err := c.Load(m.Key)
	require.ErrorIs(t, err, ErrNotCached)
	require.NoError(t, c.Store(m))
	back, err := c.Load(m.Key)
	require.NoError(t, err)
	require.Equal(t, m, back)
	r, _ := back.Pairs[1][0].Usable()
	require.Equal(t, No, r, "what failed stays failed")

	for _, change := range []func(*Key){
		func(k *Key) { k.Driver = "590" }, func(k *Key) { k.Kernel = "6.2" }, func(k *Key) { k.BootID = "b" },
	} {
		k := m.Key
		change(&k)
		_, err = c.Load(k)
		var stale *StaleError
		require.ErrorAs(t, err, &stale)
		require.ErrorIs(t, err, ErrStale)
		require.Len(t, stale.Changes, 1)
		require.ErrorContains(t, err, stale.Changes[0]+": probe again")
	}
	other := m.Key
	other.UUIDs = []string{"GPU-2", "GPU-1"}
	_, err = c.Load(other)
	require.ErrorIs(t, err, ErrNotCached)

	// A state stored later replaces the earlier one, and leaves no litter.
	m.Key.BootID = "b"
	require.NoError(t, c.Store(m))
	_, err = c.Load(m.Key)
	require.NoError(t, err)
	files, err := os.ReadDir(c.Dir)
	require.NoError(t, err)
	require.Len(t, files, 1)

	require.NoError(t, c.Clear(m.Key))
	require.NoError(t, c.Clear(m.Key))
	_, err = c.Load(m.Key)
	require.ErrorIs(t, err, ErrNotCached)
}

func TestDefaultCache(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/some/where")
	c, err := DefaultCache()
	require.NoError(t, err)
	require.Equal(t, "/some/where/fenceline", c.Dir)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, err = DefaultCache()
	require.ErrorContains(t, err, "find the probe cache")
}

// A record that says good of what was seen wrong is neither stored nor believed.
func TestCacheRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Measurement)
		want error
	}{
		"good and wrong":       {func(m *Measurement) { m.Pairs[1][0].Read.Answer = Yes }, ErrFormat},
		"good with a reason":   {func(m *Measurement) { m.Pairs[0][1].Flags.Detail = "timed out" }, ErrFormat},
		"short row":            {func(m *Measurement) { m.Pairs[1] = m.Pairs[1][:1] }, ErrFormat},
		"other devices":        {func(m *Measurement) { m.Key.UUIDs = m.Key.UUIDs[:1] }, ErrFormat},
		"negative rate":        {func(m *Measurement) { m.Pairs[0][1].CopyRate = -1 }, ErrFormat},
		"no version":           {func(m *Measurement) { m.Version = 0 }, ErrFormat},
		"no key":               {func(m *Measurement) { m.Key = Key{} }, ErrNoKey},
		"no kernel in key":     {func(m *Measurement) { m.Key.Kernel = "" }, ErrNoKey},
		"no driver in key":     {func(m *Measurement) { m.Key.Driver = "" }, ErrNoKey},
		"nothing was measured": {func(m *Measurement) { m.Pairs, m.Key.UUIDs = nil, []string{"GPU-1"} }, ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			cache := Cache{Dir: t.TempDir()}
			m := measured2()
			c.edit(m)
			require.ErrorIs(t, cache.Store(m), c.want)
			files, err := os.ReadDir(cache.Dir)
			require.NoError(t, err)
			require.Empty(t, files)
			if c.want != ErrFormat || len(m.Key.UUIDs) == 0 {
				return
			}
			text, err := json.Marshal(&cached{heading{cacheKind, FormatVersion}, m})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(cache.Path(m.Key), text, 0o600))
			_, err = cache.Load(m.Key)
			require.ErrorIs(t, err, ErrForeign)
		})
	}
}

// Every way in which a file is not the record has its own error, and names the file.
func TestDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "base.json")
	b := NewBaseline(Key{Driver: "580"}, machine2(Pair{Access: Yes}, Pair{}), nil)
	require.NoError(t, b.Save(path))
	saved, err := os.ReadFile(path)
	require.NoError(t, err)
	good := string(saved)
	edit := func(old, with string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, with, 1)
	}
	var machine strings.Builder
	require.NoError(t, b.Machine.WriteJSON(&machine))
	for name, c := range map[string]struct {
		text string
		kind error
		says string
	}{
		"empty":             {"", ErrTruncated, "it is empty: save it again"},
		"half":              {good[:len(good)/2], ErrTruncated, "save it again"},
		"all but the }":     {strings.TrimSuffix(strings.TrimSpace(good), "}"), ErrTruncated, ""},
		"text":              {"GPU0 X NV4\n", ErrForeign, ""},
		"a list":            {"[1,2]", ErrForeign, ""},
		"a machine":         {machine.String(), ErrForeign, `its kind is "", want "fenceline-baseline": name a file that was saved as a baseline`},
		"a cache":           {edit(baselineKind, cacheKind), ErrForeign, cacheKind},
		"newer":             {edit(`"version": 1`, `"version": 2`), ErrVersion, "use a newer build"},
		"older":             {edit(`"version": 1`, `"version": 0`), ErrVersion, "save it again"},
		"unknown field":     {edit(`"key":`, `"colour": "red", "key":`), ErrForeign, "colour"},
		"two":               {good + good, ErrForeign, "there is something behind the record"},
		"garbage behind":    {good + "x", ErrForeign, `text after it begins with "x"`},
		"mark ahead":        {"\xef\xbb\xbf" + good[:200], ErrTruncated, "it ends at byte 200"},
		"bad answer":        {edit(`"access": "yes"`, `"access": "perhaps"`), ErrForeign, "perhaps"},
		"wrong ordinal":     {edit(`"ordinal": 1`, `"ordinal": 7`), ErrForeign, "ordinal 7"},
		"without a machine": {`{"kind":"fenceline-baseline","version":1}`, ErrForeign, "no machine"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := ReadBaseline(path)
			var record *RecordError
			require.ErrorAs(t, err, &record)
			require.ErrorIs(t, err, c.kind)
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err = ReadBaseline(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A save that fails leaves the old record, and nothing besides it.
func TestSaveIsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "base.json")
	require.NoError(t, os.Mkdir(path, 0o755)) // a folder cannot be replaced by a file
	b := NewBaseline(Key{}, machine2(Pair{}, Pair{}), nil)
	require.ErrorContains(t, b.Save(path), "base.json: this is a folder: name a file in it")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.ErrorIs(t, b.Save(filepath.Join(dir, "no", "folder")), fs.ErrNotExist)

	path = filepath.Join(dir, "second.json")
	require.NoError(t, b.Save(path))
	b.Machine.Pairs = nil
	require.ErrorIs(t, b.Save(path), ErrFormat)
	_, err = ReadBaseline(path)
	require.NoError(t, err)
}

// A baseline whose key is of other devices was put together by hand.
func TestForeignKeys(t *testing.T) {
	for name, edit := range map[string]func(*Baseline){
		"key":                func(b *Baseline) { b.Key.UUIDs = []string{"GPU-1", "GPU-2"} },
		"key of one":         func(b *Baseline) { b.Key.UUIDs = b.Key.UUIDs[:1] },
		"another order":      func(b *Baseline) { b.Key.UUIDs = []string{b.Key.UUIDs[1], b.Key.UUIDs[0]} },
		"measurement's key":  func(b *Baseline) { b.Measurement.Key.UUIDs = []string{"GPU-1", "GPU-2"} },
		"measurement of one": func(b *Baseline) { b.Measurement.Key.UUIDs = b.Key.UUIDs[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			b := fullBaseline()
			edit(b)
			path := filepath.Join(t.TempDir(), "b.json")
			require.ErrorIs(t, b.Save(path), ErrFormat)
			text, err := json.Marshal(b)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, text, 0o600))
			_, err = ReadBaseline(path)
			require.ErrorIs(t, err, ErrForeign)
			require.ErrorContains(t, err, "save it again")
		})
	}
	b := fullBaseline() // of a machine in a file
	b.Key, b.Measurement.Key = Key{}, Key{}
	require.NoError(t, b.Save(filepath.Join(t.TempDir(), "b.json")))
}
