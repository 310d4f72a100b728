package topo

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

var (
	ErrNotCached = errors.New("nothing cached for these devices")
	ErrStale     = errors.New("cached for another state of the machine") // a *StaleError
)

// StaleError is a cached measurement whose key has changed. It must be measured again.
type StaleError struct {
	Path    string
	Changes []string // "boot was …, now …"
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("probe cache %s: %v: %s: probe again", e.Path, ErrStale, strings.Join(e.Changes, "; "))
}

// Unwrap gives ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Cache keeps measurements in a folder, one file for each list of devices. Checks are kept as they came out: one that
// failed stays failed, and what was not run stays unknown. It is safe for several processes: the last to
// store wins, and readers never see half a file.
type Cache struct{ Dir string }

const cacheKind, cacheName = "fenceline-probes", "probe cache"

// cached is the file's form.
type cached struct {
	heading
	Measurement *Measurement `json:"measurement"`
}

func (c *cached) validate() error {
	if c.Measurement == nil {
		return errors.New("no measurement")
	}
	return c.Measurement.validate()
}

// DefaultCache is the cache in the user's cache folder ($XDG_CACHE_HOME or ~/.cache).
func DefaultCache() (Cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return Cache{}, fmt.Errorf("find the probe cache: %w", err)
	}
	return Cache{Dir: filepath.Join(dir, "fenceline")}, nil
}

// Path is the file for the devices of a key.
func (c Cache) Path(k Key) string {
	sum := sha256.Sum256([]byte(strings.Join(k.UUIDs, "\n")))
	return filepath.Join(c.Dir, fmt.Sprintf("probes-%x.json", sum[:8]))
}

// Load is what was stored for exactly this key. The error matches ErrNotCached, ErrStale or, for a file that is
// damaged or foreign, ErrFormat; each means to probe again.
func (c Cache) Load(k Key) (*Measurement, error) {
	path := c.Path(k)
	var r cached
	if err := readRecord(path, cacheName, cacheKind, &r); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %w", ErrNotCached, err)
		}
		return nil, err
	}
	if changes := r.Measurement.Key.Changes(k); changes != nil {
		return nil, &StaleError{Path: path, Changes: changes}
	}
	return r.Measurement, nil
}

// Store keeps a measurement for its key, in the place of an older one of the same devices. A measurement that is
// inconsistent, or whose key does not tell its machine from another, is refused with an error that matches ErrFormat
// or ErrNoKey.
func (c Cache) Store(m *Measurement) error {
	if len(m.Key.UUIDs) == 0 || m.Key.Driver == "" || m.Key.Kernel == "" {
		return fmt.Errorf("save %s: %w: take the key from ReadKey", cacheName, ErrNoKey)
	}
	if err := m.validate(); err != nil {
		return fmt.Errorf("save %s: %w: %w", cacheName, ErrFormat, err)
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("save %s: %w", cacheName, err)
	}
	return writeRecord(c.Path(m.Key), cacheName, &cached{heading{cacheKind, FormatVersion}, m})
}

// Clear forgets what is stored for the devices of a key. Nothing stored is success.
func (c Cache) Clear(k Key) error {
	if err := os.Remove(c.Path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clear %s: %w", cacheName, err)
	}
	return nil
}

// validate refuses what no probe reports: above all a check that is both good and wrong.
func (m *Measurement) validate() error {
	n := len(m.Pairs)
	switch {
	case m.Version != FormatVersion:
		return fmt.Errorf("the measurement has version %d, this build reads version %d", m.Version, FormatVersion)
	case n == 0:
		return errors.New("the measurement has no pairs")
	case len(m.Key.UUIDs) != 0 && len(m.Key.UUIDs) != n:
		return fmt.Errorf("the measurement has %d rows for %d devices", n, len(m.Key.UUIDs))
	}
	for i, row := range m.Pairs {
		if len(row) != n {
			return fmt.Errorf("row %d of the measurement has %d cells for %d devices", i, len(row), n)
		}
		for j, p := range row {
			for _, c := range p.checks() {
				if c.Answer == Yes && (c.Detail != "" || c.Expected != c.Got) {
					return fmt.Errorf("%s from %d to %d is good, and yet: %s", c.name, i, j, Check{Detail: c.Detail, Answer: No, Expected: c.Expected, Got: c.Got, Offset: c.Offset})
				}
			}
			for _, v := range p.numbers() {
				if v.value < 0 {
					return fmt.Errorf("%s from %d to %d is %v", v.name, i, j, v.value)
				}
			}
		}
	}
	return nil
}
