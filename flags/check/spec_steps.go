package check

// add puts a step behind those there are.
func (r *specReader) add(s *specStep) {
	r.launchDone()
	if n := len(r.open); n > 0 {
		r.open[n-1].body = append(r.open[n-1].body, s)
		return
	}
	r.body.steps = append(r.body.steps, s)
}

func (r *specReader) launchDone() { r.launch = nil }

// who takes `on EXPR,…` or `where EXPR`, if either is there.
func (l *specLine) who(s *specStep) bool {
	switch {
	case l.has("on"):
		s.on = []expr{l.expr()}
		for l.has(",") {
			s.on = append(s.on, l.expr())
		}
	case l.has("where"):
		s.where = l.expr()
	default:
		return false
	}
	return true
}

func (r *specReader) launchStep(l *specLine) {
	t := l.next()
	if !t.word() {
		l.fail(t, "which kernel, found %v: name an entry of the PTX", t)
	}
	one := constant(1)
	s := &specStep{kind: stepLaunch, at: l.place(t), entry: t.text, grid: [3]expr{one, one, one}, block: [3]expr{constant(32), one, one}}
	for l.peek().text != "" {
		if l.who(s) {
			continue
		}
		switch t := l.next(); t.text {
		case "grid":
			s.grid = l.shape()
		case "block":
			s.block = l.shape()
		case "shared":
			s.shared = l.expr()
		case "stream":
			s.stream = l.expr()
		case "times":
			s.times = l.expr()
		case "resident":
			s.resident = l.expr()
		case "dependent":
			s.dependent = true
		case "ordinary": // what a launch is unless it says otherwise
		default:
			l.fail(t, "%v says nothing of a launch: use grid, block, shared, on, where, stream, times, resident, dependent or ordinary", t)
		}
	}
	r.add(s)
	r.launch = s
}

// shape is EXPR or EXPR x EXPR x EXPR.
func (l *specLine) shape() [3]expr {
	s := [3]expr{l.expr(), constant(1), constant(1)}
	for i := 1; i < 3 && l.has("x"); i++ {
		s[i] = l.expr()
	}
	return s
}

func (r *specReader) write(l *specLine) {
	t := l.peek()
	s := &specStep{kind: stepWrite, at: l.place(t), buffer: l.buffer()}
	if s.buffer.calls {
		l.fail(t, "%s is another buffer in each call, so there is nothing to write anew: give each call its contents by `fill`", t.text)
	}
	s.fill = l.fill()
	l.who(s)
	r.add(s)
}

func (r *specReader) sync(l *specLine) { r.add(&specStep{kind: stepSync, at: place{l.n, 1}}) }

func (r *specReader) repeat(l *specLine) {
	s := &specStep{kind: stepRepeat, at: l.place(l.peek())}
	s.times = l.expr()
	r.add(s)
	r.open = append(r.open, s)
}

func (r *specReader) end(l *specLine) {
	if len(r.open) == 0 {
		l.fail(specToken{col: 1}, "there is nothing to end: remove this line, or begin with `repeat 2`")
	}
	r.launchDone()
	r.open = r.open[:len(r.open)-1]
}

func (r *specReader) expect(l *specLine) {
	t := l.peek()
	s := &specStep{kind: stepExpect, at: l.place(t), buffer: l.buffer(), expect: &specExpect{}}
	x := s.expect
	if !l.has("unchanged") {
		if l.has("at") {
			x.offset = l.expr()
		}
		if l.has("count") {
			x.count = l.expr()
		}
		x.typ = l.typ()
		switch t := l.next(); t.text {
		case "sum":
			x.sum = l.buffer()
			if l.has("at") {
				x.sumOffset = l.expr()
			}
		case "=":
			x.value = l.expr()
			x.cost = l.spent()
		default:
			l.fail(t, "what is expected, found %v: use `expect out f32 sum in`, `expect out u32 = i`, or `expect out unchanged`", t)
		}
	}
	l.who(s)
	r.add(s)
}
