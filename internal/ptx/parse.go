package ptx

// Parse reads and lowers a whole module. The error is always an *Error.
func Parse(file string, src []byte) (*Module, error) {
	return nil, &Error{File: file, Line: 1, Msg: "the parser is not in place yet"}
}

// Signatures reads the entry declarations only and skips their bodies. The error is always an *Error.
func Signatures(file string, src []byte) (*Info, error) {
	return nil, &Error{File: file, Line: 1, Msg: "the parser is not in place yet"}
}

type op struct{}
