//go:build unix

package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shell starts a script whose own lines begin with a colon.
func shell(t *testing.T, script string, prepare ...func(*exec.Cmd)) *Process[string] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // not the test's, which ends before Cleanup
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	for _, f := range prepare {
		f(cmd)
	}
	p, err := Start(cmd, 300*time.Millisecond, func(line []byte) (string, bool) {
		text, own := bytes.CutPrefix(line, []byte(":"))
		return string(text), own
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		require.True(t, p.Gone(10*time.Second))
	})
	return p
}

func within(t *testing.T, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func TestAnswers(t *testing.T) {
	p := shell(t, `echo hello; while read x; do echo chatter; echo :$x; done; echo the end >&2`)
	ctx := within(t, 10*time.Second)
	for i := range 3 {
		_, err := fmt.Fprintf(p.Stdin, "order %d\n", i)
		require.NoError(t, err)
		got, err := p.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("order ", i), got)
	}
	require.False(t, p.Gone(50*time.Millisecond))
	require.NoError(t, p.Stdin.Close())
	_, err := p.Next(ctx)
	require.ErrorIs(t, err, ErrEnded)
	require.Equal(t, "exit status 0: the end", p.Obituary())
	require.True(t, p.Gone(time.Second))
	require.True(t, p.Kill(time.Second), "it is gone already")
}

func TestObituary(t *testing.T) {
	for script, want := range map[string]string{
		`exit 0`:                                 "exit status 0",
		`echo out of >&2; echo luck >&2; exit 3`: "exit status 3: out of luck",
		`kill -9 $$`:                             "signal: killed",
		`head -c 5000000 /dev/zero; echo; echo :unseen; exit 4`: "exit status 4", // a line too long
	} {
		p := shell(t, script)
		_, err := p.Next(within(t, 10*time.Second))
		require.ErrorIs(t, err, ErrEnded, script)
		require.Equal(t, want, p.Obituary(), script)
	}
	p := shell(t, `echo still at it >&2; echo :; exec sleep 60`)
	_, err := p.Next(within(t, 10*time.Second))
	require.NoError(t, err)
	require.Equal(t, "it is still there: still at it", p.Obituary())
}

// A child that says nothing, or never stops saying things, is given up in time, and can be killed.
func TestBounded(t *testing.T) {
	for name, script := range map[string]string{
		"silent":   `exec sleep 60`,
		"deaf":     `trap "" TERM INT HUP; while :; do sleep 0.1; done`,
		"chatters": `while :; do echo x; done`,
	} {
		t.Run(name, func(t *testing.T) {
			p := shell(t, script)
			start := time.Now()
			_, err := p.Next(within(t, 100*time.Millisecond))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, p.Gone(50*time.Millisecond))
			require.True(t, p.Kill(5*time.Second))
			require.Equal(t, "signal: killed", p.Obituary())
			require.Less(t, time.Since(start), 10*time.Second)
		})
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	_, err := shell(t, `exec sleep 60`).Next(ctx)
	require.ErrorIs(t, err, why)
}

// What nobody has read does not keep the child.
func TestUnread(t *testing.T) {
	p := shell(t, `for i in 1 2 3 4 5 6 7 8; do echo :$i; done; exit 5`)
	require.True(t, p.Gone(10*time.Second))
	require.Equal(t, "exit status 5", p.Obituary())
}

// In a group of its own, a wrapper takes what it started with it. Otherwise that holds the wrapper's stdout.
func TestOwnGroup(t *testing.T) {
	for _, own := range []bool{true, false} {
		p := shell(t, `sleep 2 & echo :; wait`, func(cmd *exec.Cmd) {
			if own {
				OwnGroup(cmd)
			}
		})
		_, err := p.Next(within(t, 10*time.Second))
		require.NoError(t, err)
		if own {
			require.True(t, p.Kill(5*time.Second))
		} else {
			require.False(t, p.Kill(200*time.Millisecond))
		}
	}
}

// A context that ends takes the child along. Whoever else holds its stderr is waited for no longer than linger.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 5 >/dev/null & echo :; wait")
	p, err := Start(cmd, 300*time.Millisecond, func(line []byte) (bool, bool) { return true, string(line) == ":" })
	require.NoError(t, err)
	_, err = p.Next(within(t, 10*time.Second))
	require.NoError(t, err)
	cancel()
	require.True(t, p.Gone(3*time.Second))
}

func TestAbsent(t *testing.T) {
	_, err := Start(exec.CommandContext(t.Context(), "/nonexistent/child"), time.Second, func([]byte) (int, bool) { return 0, true })
	require.ErrorContains(t, err, "no such file")
}

func TestTail(t *testing.T) {
	var end tail
	for i := range 1000 {
		n, err := fmt.Fprintf(&end, "line %d\n", i)
		require.NoError(t, err)
		require.Equal(t, len(fmt.Sprintf("line %d\n", i)), n)
		require.LessOrEqual(t, len(end.b), maxStderr)
	}
	require.True(t, strings.HasSuffix(end.String(), "line 998 line 999"))
	_, err := io.WriteString(&end, strings.Repeat("x", 3*maxStderr))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("x", maxStderr), end.String())
}
