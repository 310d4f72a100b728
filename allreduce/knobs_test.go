package allreduce

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKnobsFromEnv(t *testing.T) {
	k, err := KnobsFromEnv([]string{"PATH=/bin", "NCCL_P2P_LEVEL=fast", "FENCELINE", "=C:=C:\\", "XFENCELINE_ALGO=1"})
	require.NoError(t, err)
	require.Zero(t, k)
	for env, want := range map[string]Knobs{
		"FENCELINE_ALGO=auto":         {},
		"FENCELINE_ALGO=copy":         {Algorithm: Copy},
		"FENCELINE_ALGO=Oneshot-Pull": {Algorithm: OneshotPull},
		"FENCELINE_ALGO=twoshot-push": {Algorithm: TwoshotPush},
		"FENCELINE_P2P_LEVEL=LOC":     {P2PLevel: LevelLOC},
		"FENCELINE_P2P_LEVEL=NVL":     {P2PLevel: LevelNVL},
		"FENCELINE_P2P_LEVEL=node":    {P2PLevel: LevelNODE},
		"FENCELINE_P2P_LEVEL=SYS":     {P2PLevel: LevelSYS},
		"FENCELINE_P2P_DISABLE=0":     {},
		"FENCELINE_P2P_DISABLE=1":     {P2PDisable: true},
		"FENCELINE_MAX_BYTES=16":      {MaxBytes: 16},
		"FENCELINE_MAX_BYTES=512K":    {MaxBytes: 512 << 10},
		"FENCELINE_MAX_BYTES=4MB":     {MaxBytes: 4 << 20},
		"FENCELINE_MAX_BYTES=1G":      {MaxBytes: 1 << 30},
		"FENCELINE_TIMEOUT=1m30s":     {Timeout: 90 * time.Second},
		"FENCELINE_TIMEOUT=24h":       {Timeout: 24 * time.Hour},
		"FENCELINE_ALGO=nccl":         {Algorithm: NCCL},
		"FENCELINE_NCCL=0":            {},
		"FENCELINE_NCCL=1":            {NCCL: true},
	} {
		k, err := KnobsFromEnv([]string{"A=b", env, env})
		require.NoError(t, err, env)
		require.Equal(t, want, k, env)
	}
	k, err = KnobsFromEnv([]string{"FENCELINE_ALGO=host", "FENCELINE_P2P_LEVEL=PXB", "FENCELINE_P2P_DISABLE=1", "FENCELINE_MAX_BYTES=1M", "FENCELINE_TIMEOUT=2s"})
	require.NoError(t, err)
	require.Equal(t, Knobs{Algorithm: Host, P2PLevel: LevelPXB, P2PDisable: true, MaxBytes: 1 << 20, Timeout: 2 * time.Second}, k)
}

func TestKnobsRefused(t *testing.T) {
	for env, message := range map[string]string{
		"FENCELINE_ALGO=":                          `environment: FENCELINE_ALGO="": want auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl`,
		"FENCELINE_ALGO=fast":                      `environment: FENCELINE_ALGO="fast": want auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl`,
		"FENCELINE_ALGO= copy":                     `environment: FENCELINE_ALGO=" copy": want auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl`,
		"FENCELINE_P2P_LEVEL=":                     `environment: FENCELINE_P2P_LEVEL="": want LOC, NVL, PIX, PXB, PHB, NODE, SYS`,
		"FENCELINE_P2P_LEVEL=3":                    `environment: FENCELINE_P2P_LEVEL="3": want LOC, NVL, PIX, PXB, PHB, NODE, SYS`,
		"FENCELINE_P2P_DISABLE=":                   `environment: FENCELINE_P2P_DISABLE="": want 0, 1`,
		"FENCELINE_P2P_DISABLE=true":               `environment: FENCELINE_P2P_DISABLE="true": want 0, 1`,
		"FENCELINE_P2P_DISABLE":                    `environment: FENCELINE_P2P_DISABLE="": want 0, 1`,
		"FENCELINE_MAX_BYTES=0":                    `environment: FENCELINE_MAX_BYTES="0": want a multiple of 16 from 16 to 1G, such as 4194304 or 4M`,
		"FENCELINE_MAX_BYTES=17":                   `environment: FENCELINE_MAX_BYTES="17": want a multiple of 16 from 16 to 1G, such as 4194304 or 4M`,
		"FENCELINE_MAX_BYTES=2G":                   `environment: FENCELINE_MAX_BYTES="2G": want a multiple of 16 from 16 to 1G, such as 4194304 or 4M`,
		"FENCELINE_MAX_BYTES=K":                    `environment: FENCELINE_MAX_BYTES="K": want a multiple of 16 from 16 to 1G, such as 4194304 or 4M`,
		"FENCELINE_MAX_BYTES=-16":                  `environment: FENCELINE_MAX_BYTES="-16": want a multiple of 16 from 16 to 1G, such as 4194304 or 4M`,
		"FENCELINE_TIMEOUT=10":                     `environment: FENCELINE_TIMEOUT="10": want a duration from 1ms to 24h with its unit, such as 500ms or 10s`,
		"FENCELINE_TIMEOUT=0s":                     `environment: FENCELINE_TIMEOUT="0s": want a duration from 1ms to 24h with its unit, such as 500ms or 10s`,
		"FENCELINE_TIMEOUT=25h":                    `environment: FENCELINE_TIMEOUT="25h": want a duration from 1ms to 24h with its unit, such as 500ms or 10s`,
		"FENCELINE_NCCL=":                          `environment: FENCELINE_NCCL="": want 0, 1`,
		"FENCELINE_NCCL=yes":                       `environment: FENCELINE_NCCL="yes": want 0, 1`,
		"FENCELINE_ALGOS=copy":                     `environment: there is no variable "FENCELINE_ALGOS": use one of FENCELINE_ALGO, FENCELINE_P2P_LEVEL, FENCELINE_P2P_DISABLE, FENCELINE_MAX_BYTES, FENCELINE_TIMEOUT, FENCELINE_NCCL, or unset it`,
		"fenceline_algo=copy":                      `environment: there is no variable "fenceline_algo": use one of FENCELINE_ALGO, FENCELINE_P2P_LEVEL, FENCELINE_P2P_DISABLE, FENCELINE_MAX_BYTES, FENCELINE_TIMEOUT, FENCELINE_NCCL, or unset it`,
		"FENCELINE_MAX_BYTES=99999999999999999999": `environment: FENCELINE_MAX_BYTES="99999999999999999999": want a multiple of 16 from 16 to 1G, such as 4194304 or 4M`,
	} {
		k, err := KnobsFromEnv([]string{"A=b", env})
		require.EqualError(t, err, message)
		require.ErrorIs(t, err, ErrKnob)
		var ke *KnobError
		require.ErrorAs(t, err, &ke)
		require.Zero(t, k)
	}
	_, err := KnobsFromEnv([]string{"FENCELINE_ALGO=copy", "FENCELINE_ALGO=host"})
	require.EqualError(t, err, `environment: FENCELINE_ALGO="host": want one value, not two (also "copy")`)
}

func TestKnobTable(t *testing.T) {
	var names []string
	for _, k := range KnobTable() {
		names = append(names, k.Name)
		require.NotEmpty(t, k.Help)
		require.NotEmpty(t, k.Allowed)
		require.ErrorIs(t, k.Check("nonsense"), ErrKnob)
	}
	require.Equal(t, knobNames[:], names)
	for _, file := range []string{"doc.go", "../README.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range names {
			require.Contains(t, string(text), name, file)
		}
	}
	require.NoError(t, KnobTable()[0].Check("copy"))
}

func TestLevel(t *testing.T) {
	for link, want := range map[string]Level{"NV1": LevelNVL, "NV18": LevelNVL, "PIX": LevelPIX, "PXB": LevelPXB, "PHB": LevelPHB,
		"NODE": LevelNODE, "SYS": LevelSYS, "": LevelUnset, "SOC": LevelUnset, "NV": LevelUnset, "NVL": LevelUnset, "LOC": LevelUnset, "NVx": LevelUnset} {
		require.Equal(t, want, levelOf(link), link)
	}
	for l := LevelUnset; l < numLevels; l++ {
		b, err := json.Marshal(Knobs{P2PLevel: l})
		require.NoError(t, err)
		var k Knobs
		require.NoError(t, json.Unmarshal(b, &k))
		require.Equal(t, l, k.P2PLevel)
	}
	_, err := ParseLevel("")
	require.ErrorIs(t, err, ErrUnknownName)
	require.Equal(t, []string{"unset", "SYS", "invalid"}, []string{LevelUnset.String(), LevelSYS.String(), numLevels.String()})
	_, err = numLevels.MarshalText()
	require.Error(t, err)
}
