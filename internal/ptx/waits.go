package ptx

// waiting finds out which entries may come to griddepcontrol.wait, by the tokens alone, so that it works on PTX of which only
// the declarations are read.
type waiting struct {
	item    body            // the top-level item being read
	name    string          // of the function that it is; "" for an entry
	naming  bool            // .func has come, and not yet its name
	depth   int             // of parentheses, while naming or calling
	calling bool            // in a call instruction
	funcs   map[string]body // by name; a declaration adds nothing
	entries []body          // as Info.Entries
}

// body is what counts of an item.
type body struct {
	waits bool
	calls []string // what call instructions name
}

// pass looks at a token and the one behind it.
func (w *waiting) pass(t, next token) {
	switch {
	case t.is("("):
		w.depth++
	case t.is(")"):
		w.depth--
	case t.is(";"):
		w.calling = false
	case t.kind == tokDot && t.text == "func":
		w.naming, w.depth = true, 0
	case t.kind != tokIdent:
	case w.naming:
		if w.depth == 0 {
			w.name, w.naming = t.text, false
		}
	case t.text == "griddepcontrol":
		w.item.waits = w.item.waits || next.kind == tokDot && next.text == "wait"
	case t.text == "call":
		w.calling, w.depth = true, 0
	case w.calling && w.depth == 0: // not its operands
		w.item.calls = append(w.item.calls, t.text)
	}
}

// end is the end of an item.
func (w *waiting) end(entry bool) {
	switch {
	case entry:
		w.entries = append(w.entries, w.item)
	case w.name != "":
		if w.funcs == nil {
			w.funcs = map[string]body{}
		}
		f := w.funcs[w.name]
		w.funcs[w.name] = body{f.waits || w.item.waits, append(f.calls, w.item.calls...)}
	}
	w.item, w.name, w.naming, w.calling = body{}, "", false, false
}

// reaches is whether b, or a function that it calls by name, or one that that calls, waits.
func (w *waiting) reaches(b body, seen map[string]bool) bool {
	if b.waits {
		return true
	}
	for _, name := range b.calls {
		f, ok := w.funcs[name]
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		if w.reaches(f, seen) {
			return true
		}
	}
	return false
}
