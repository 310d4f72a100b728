//go:build !linux || !(amd64 || arm64)

package doctor

import "errors"

func signalHandlers() ([]handler, error) { return nil, errors.ErrUnsupported }

func fetchOwnDescriptor() error { return errors.ErrUnsupported }

func diskFree(string) (free, total uint64, err error) { return 0, 0, errors.ErrUnsupported }
